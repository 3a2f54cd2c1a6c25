"""The eager driver: the host reads a flag between steps."""

from collections.abc import Callable

from models.search.state import TransducerState


def repeat(step: Callable[[TransducerState], None], state: TransducerState) -> int:
    """Repeat ``step`` until every row is done, and return how often it ran.

    Every step must emit a label on each active row or finish it. So one step more than the state's capacity is enough,
    and nothing can make the search spin.
    """
    limit = state.capacity + 1
    for steps in range(limit):
        if not bool(state.active.any()):
            return steps
        step(state)
    return limit
