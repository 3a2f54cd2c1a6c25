"""The learning rate over a run: a line up, a plateau, and half a cosine down (Loshchilov and Hutter, 2017).

With a plateau, the length of a run need be chosen only when the fall begins (Hu et al., 2024, arXiv 2404.06395).
"""

import math
from dataclasses import replace

from training.recipe import Optimizer, Recipe


def rate_of_step(recipe: Recipe, step: int) -> float:
    """Return the learning rate of a step; with a teacher, each of the two stages has its own."""
    optimizer, teacher = recipe.optimizer, recipe.teacher
    apart = teacher.apart.steps if teacher else 0
    if teacher and step < apart:
        return learning_rate(step, apart, replace(optimizer, peak=teacher.apart.peak, decay=0.0))
    return learning_rate(step - apart, recipe.steps - apart, optimizer)


def learning_rate(step: int, steps: int, optimizer: Optimizer) -> float:
    """Return the learning rate of a step, from 0, in a run of ``steps``.

    It falls at the end, but not before the peak.
    """
    peak, warmup, final = optimizer.peak, optimizer.warmup, optimizer.final
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    # The fall begins at the peak: at the end of the warm-up, or at the last step of the plateau.
    start, last = max(warmup, round(steps * (1 - optimizer.decay)) - 1), steps - 1
    progress = min(1.0, max(0, step - start) / max(1, last - start))
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)
