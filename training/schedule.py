"""The learning rate over a run: a line up, a plateau, and half a cosine down (Loshchilov and Hutter, 2017).

With a plateau, the length of a run need be chosen only when the fall begins (Hu et al., 2024, arXiv 2404.06395).
"""

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup: int, decay: float, final: float) -> float:
    """Return the learning rate of a step.

    Args:
        step: the step, from 0.
        steps: steps of the run.
        peak: highest learning rate.
        warmup: steps up to it.
        decay: share of the run over which it falls, at the end, but not before the peak.
        final: learning rate at the end of the fall, as a share of the highest.
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    # The fall begins at the peak: at the end of the warm-up, or at the last step of the plateau.
    start, last = max(warmup, round(steps * (1 - decay)) - 1), steps - 1
    progress = min(1.0, max(0, step - start) / max(1, last - start))
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)
