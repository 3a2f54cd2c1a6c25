"""Merging and the loss equal their definitions written out over whole distributions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.distillation import distillation_loss, greedy_labels, hidden_loss, merged
from training.posteriors import record_type

VOCABULARY = 7  # the blank is label 7


def teacher(count, kept, seed, blank_share=0.5):
    """Distributions [count, labels + 1] that have ``kept`` labels besides the blank, and their records."""
    random = np.random.default_rng(seed)
    dense = np.zeros((count, VOCABULARY + 1))
    records = np.empty(count, record_type(kept))
    for row, record in zip(dense, records, strict=True):
        labels = random.permutation(VOCABULARY)[:kept]
        row[labels] = np.sort(random.dirichlet(np.ones(kept)))[::-1] * (1 - blank_share)
        row[VOCABULARY] = blank_share
        record["blank"], record["labels"], record["masses"] = row[VOCABULARY], labels, row[labels]
    return dense, records


def dense_merged(dense, ratio):
    """The definition, frame by frame and label by label."""
    out = []
    for start in range(0, len(dense), ratio):
        group = dense[start : start + ratio]
        blank = np.prod(group[:, VOCABULARY])
        mass = group[:, :VOCABULARY].sum(axis=0)
        labels = (1 - blank) * mass / mass.sum() if mass.sum() else mass
        out.append(np.append(labels, blank))
    return np.array(out)


def as_dense(targets):
    dense = np.zeros((len(targets.blank), VOCABULARY + 1))
    for row, labels, masses in zip(dense, targets.labels, targets.masses, strict=True):
        np.add.at(row, labels, masses)
    dense[:, VOCABULARY] = targets.blank
    return dense


@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.9, 1.0])
)
@settings(max_examples=100, deadline=None)
def test_merging_equals_its_definition(count, kept, ratio, seed, blank_share):
    dense, records = teacher(count, kept, seed, blank_share)

    targets = merged(records, ratio)

    assert targets.blank.shape == (-(-count // ratio),)
    np.testing.assert_allclose(as_dense(targets), dense_merged(dense, ratio), atol=3e-3)
    np.testing.assert_allclose(as_dense(targets).sum(axis=1), 1, atol=1e-5)


def test_a_merged_frame_is_blank_only_if_all_of_its_frames_are():
    records = np.zeros(4, record_type(1))
    records["blank"] = [1, 1, 1, 0.25]
    records["masses"] = [[0], [0], [0], [0.75]]
    records["labels"] = [[0], [0], [0], [5]]

    targets = merged(records, 2)

    assert targets.blank.tolist() == [1.0, 0.25]
    assert as_dense(targets)[1, 5] == pytest.approx(0.75)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 4), st.floats(0, 10), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_the_loss_equals_cross_entropy_over_whole_distributions(batch, frames, kept, emphasis, seed):
    random = np.random.default_rng(seed)
    rows = [teacher(frames, kept, seed + row, blank_share=float(random.random())) for row in range(batch)]
    lengths = random.integers(0, frames + 1, batch)
    log_q = np.log(random.dirichlet(np.ones(VOCABULARY + 1), (batch, frames)))

    total = weight = 0.0
    for (_, records), row, length in zip(rows, log_q, lengths, strict=True):
        for p, q in zip(as_dense(merged(records, 1))[:length], row, strict=False):
            w = 1 + emphasis * (1 - p[VOCABULARY])
            total -= w * (p * q).sum()
            weight += w
    targets = [merged(records, 1) for _, records in rows]
    loss = distillation_loss(
        torch.tensor(log_q),
        torch.tensor(np.stack([one.blank for one in targets])),
        torch.tensor(np.stack([one.labels for one in targets])),
        torch.tensor(np.stack([one.masses for one in targets])),
        torch.tensor(np.arange(frames) < lengths[:, None]),
        emphasis,
    )

    assert loss.item() == pytest.approx(total / max(weight, 1), rel=1e-5)


@given(st.integers(0, 7), st.integers(1, 3))
def test_the_encoders_frames_are_merged_side_by_side(count, ratio):
    records = np.zeros(count, record_type(1, width=2))
    records["blank"] = 1
    records["hidden"] = np.arange(2 * count).reshape(count, 2)

    hidden = merged(records, ratio).hidden

    assert hidden.shape == (-(-count // ratio), 2 * ratio)
    assert hidden.ravel()[: 2 * count].tolist() == list(range(2 * count))
    assert not hidden.ravel()[2 * count :].any()


def test_the_distance_to_the_encoders_frames_is_a_share_of_their_size_over_real_frames():
    hidden = torch.tensor([[[3.0, 4.0], [1e6, 1e6]]])
    valid = torch.tensor([[True, False]])

    assert hidden_loss(torch.zeros(1, 2, 2), hidden, valid).item() == pytest.approx(1)
    assert hidden_loss(torch.tensor([[[3.0, 0.0], [0.0, 0.0]]]), hidden, valid).item() == pytest.approx(16 / 25)
    assert hidden_loss(hidden, hidden, ~valid & valid).item() == 0


def test_the_teachers_transcript_merges_repeats_and_drops_blanks():
    records = np.zeros(7, record_type(2))
    records["labels"][:, 0] = [3, 3, 9, 3, 4, 4, 4]
    records["masses"][:, 0] = [0.9, 0.9, 0.1, 0.9, 0.5, 0.6, 0.9]
    records["blank"] = [0.1, 0.1, 0.9, 0.1, 0.5, 0.4, 0.1]

    assert greedy_labels(records) == [3, 3, 4]
    assert greedy_labels(records[:0]) == []
