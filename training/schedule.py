"""The learning rate over a run: a straight line up, and half a cosine down (Loshchilov and Hutter, 2017)."""

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup: int, final: float) -> float:
    """Return the learning rate of a step.

    Args:
        step: the step, from 0.
        steps: steps of the run.
        peak: highest learning rate.
        warmup: steps on the way there.
        final: learning rate of the last step, as a share of the highest.
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, steps - 1 - warmup))
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)
