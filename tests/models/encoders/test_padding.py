"""Padding is taken out, and put back where it was; that results do not change is in test_conformer.py."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from models.encoders.conformer import ConformerEncoder
from models.encoders.padding import Padding
from tests.models.small import SMALL

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=5)


@given(LENGTHS, st.integers(1, 5))
def test_frames_without_padding_are_put_back_where_they_were(lengths, spare):
    rows = torch.randn(len(lengths), max(lengths) + spare, 3)
    padding = Padding(torch.tensor(lengths), rows.size(1), sum(lengths))

    frames = padding.without(rows)

    assert frames.shape == ((1, sum(lengths), 3) if any(lengths) else rows.shape)
    assert padding.with_it(frames).shape == rows.shape
    assert torch.equal(padding.with_it(frames)[padding.valid], rows[padding.valid])
    for row, length, start in zip(rows, lengths, padding.starts.tolist(), strict=False):
        assert torch.equal(frames.flatten(0, 1)[start : start + length], row[:length])


@pytest.mark.parametrize(("lengths", "total"), [([4, 2], None), ([4, 4], 8), ([0, 0], 0)])
def test_rows_are_unchanged_if_lengths_are_unknown_or_there_is_no_padding_or_nothing_else(lengths, total):
    rows = torch.randn(2, 4, 3)
    padding = Padding(torch.tensor(lengths), 4, total)

    assert padding.without(rows) is rows
    assert padding.with_it(rows) is rows
    assert padding.starts.tolist() == [0, 4, 8]


@torch.no_grad()
def test_a_cpu_multiplies_real_frames_only():
    encoder = ConformerEncoder(SMALL).eval()
    multiplied = set()
    for product in encoder.layers.modules():
        if isinstance(product, nn.Linear):
            product.register_forward_hook(lambda _, inputs, __: multiplied.add(inputs[0].shape[:-1].numel()))

    _, frames = encoder(torch.randn(3, SMALL.mels, 64), torch.tensor([64, 9, 30]))

    distances = 2 * (16 + 31) - 1
    assert multiplied == {int(frames.sum()), distances}
