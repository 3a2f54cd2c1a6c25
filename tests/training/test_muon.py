"""Muon's steps are orthogonal, as large as AdamW's, and the same whatever is computed beside them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from training.muon import Muon, orthogonalized


@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000), st.floats(1e-4, 1e4))
@settings(max_examples=60, deadline=None)
def test_singular_values_become_about_one_and_vectors_stay(count, rows, columns, seed, size):
    random = torch.Generator().manual_seed(seed)
    rank = min(rows, columns)
    left = torch.linalg.qr(torch.randn(count, rows, rank, generator=random)).Q
    right = torch.linalg.qr(torch.randn(count, columns, rank, generator=random)).Q
    values = size * (0.1 + torch.rand(count, rank, generator=random))

    found = orthogonalized(left @ torch.diag_embed(values) @ right.mT)

    core = left.mT @ found @ right
    seen = core.diagonal(dim1=1, dim2=2)
    assert ((seen > 0.3) & (seen < 1.3)).all()
    assert (core - torch.diag_embed(seen)).abs().max() < 1e-3
    assert torch.allclose(found, left @ core @ right.mT, atol=1e-3)


def test_zeros_stay_zeros():
    assert not orthogonalized(torch.zeros(2, 3, 5)).any()


def weights_after(*shapes, steps=3, together=True):
    """Weights of these shapes after some steps of one optimizer, or of one for each."""
    weights = [nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(7))) for shape in shapes]
    parts = [weights] if together else [[weight] for weight in weights]
    optimizers = [Muon(part, lr=0.01, weight_decay=0.1) for part in parts]
    for step in range(steps):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
        for optimizer in optimizers:
            optimizer.step()
    return weights


def test_matrices_of_one_shape_that_are_computed_together_are_what_they_are_alone():
    shapes = [(8, 6), (8, 6), (6, 8, 1), (6, 8, 1)]

    for one, other in zip(weights_after(*shapes), weights_after(*shapes, together=False), strict=True):
        assert one.detach() == pytest.approx(other.detach(), abs=1e-6)


def test_a_kernel_of_width_one_is_the_matrix_that_it_is():
    matrix, kernel = weights_after((6, 8), (6, 8, 1))

    assert kernel.detach()[:, :, 0] == pytest.approx(matrix.detach(), abs=1e-6)


def test_a_step_is_as_large_as_one_of_adamw():
    (before,), (after,) = weights_after((64, 32), steps=0), weights_after((64, 32), steps=1)

    moved = (after - before * (1 - 0.01 * 0.1)).detach().square().mean().sqrt()
    assert moved == pytest.approx(0.01 * 0.2, rel=0.3)
