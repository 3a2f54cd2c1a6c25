"""The eager driver: the host reads a flag between steps."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from torch import Tensor


class SearchState(Protocol):
    """The part of a search's state that the driver uses."""

    capacity: int

    @property
    def active(self) -> Tensor:
        """Whether each row is active, bool [batch]."""
        ...


State = TypeVar("State", bound=SearchState)


def repeat(step: Callable[[State], None], state: State) -> int:
    """Repeat ``step`` until all rows are done, and return how often it ran.

    Each step must, in each active row, emit a label, pass a frame that has room for more labels, or end the row. So the
    state's capacity plus one bounds the number of steps, and a search always ends.
    """
    limit = state.capacity + 1
    for steps in range(limit):
        if not bool(state.active.any()):
            return steps
        step(state)
    return limit
