"""Activations in a kernel."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """Return the logistic function."""
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    """Return the hyperbolic tangent."""
    # By the magnitude, so that nothing overflows.
    shrunk = tl.exp(-2 * tl.abs(x))
    magnitude = (1 - shrunk) / (1 + shrunk)
    return tl.where(x < 0, -magnitude, magnitude)
