"""The eager driver: the host reads a flag between steps."""

from collections.abc import Callable

from models.search.state import TransducerState


def repeat(step: Callable[[TransducerState], None], state: TransducerState) -> int:
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
