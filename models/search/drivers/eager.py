"""The eager driver: the host reads a flag between steps."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from torch import Tensor


class SearchState(Protocol):
    """What the driver needs to know of a search."""

    capacity: int

    @property
    def active(self) -> Tensor:
        """Whether each row goes on, bool [batch]."""
        ...


State = TypeVar("State", bound=SearchState)


def repeat(step: Callable[[State], None], state: State) -> int:
    """Repeat ``step`` until every row is done, and return how often it ran.

    Every step must, on each active row, emit a label or move on by a frame that no label was found at. So one step more
    than the state's capacity is enough, and nothing can make the search spin.
    """
    limit = state.capacity + 1
    for steps in range(limit):
        if not bool(state.active.any()):
            return steps
        step(state)
    return limit
