"""Sums over alignments equal those of all alignments, one by one; the share of an arc is the derivative of the sum."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.losses.lattice import Arc, align, arcs_of, diagonals_of


def by_enumeration(weights, arcs, frames, labels):
    """Sum over every path through a clip whose last arc is a blank; weights [arcs, frames, labels + 1]."""

    def paths(frame, emitted, ends_in_blank):
        if frame == frames:
            return [0.0] if emitted == labels and ends_in_blank else []
        return [
            weights[place, frame, emitted].item() + rest
            for place, arc in enumerate(arcs)
            if frame + arc.frames <= frames and emitted + arc.labels <= labels
            for rest in paths(frame + arc.frames, emitted + arc.labels, arc.labels == 0)
        ]

    return math.log(total) if (total := sum(map(math.exp, paths(0, 0, False)))) else -math.inf


CLIPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=4)
DURATIONS = st.sampled_from([(), (0, 1, 2), (0, 1, 2, 3, 4), (1, 2), (0, 2, 5), (1,)])


def lattice(clips, arcs, seed):
    """Random weights of the nodes of some clips, and the clips' frames and labels."""
    frames, labels = (torch.tensor(sizes) for sizes in zip(*clips, strict=True))
    most = int(labels.max())
    shape = len(arcs), len(clips), diagonals_of(int(frames.max()), most), 1 + most
    return -3 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)), frames, labels


def by_frame(weights, frames):
    """Weights by frame, [arcs, clips, frames, labels + 1]."""
    columns = [weights[:, :, emitted : emitted + frames, emitted] for emitted in range(weights.size(3))]
    return torch.stack(columns, dim=3)


@given(CLIPS, DURATIONS, st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_sum_is_that_over_all_alignments(clips, durations, seed):
    arcs = arcs_of(durations)
    weights, frames, labels = lattice(clips, arcs, seed)

    aligned = align(weights, arcs, frames, labels)

    nodes = by_frame(weights, int(frames.max()))
    expected = [by_enumeration(nodes[:, clip], arcs, *sizes) for clip, sizes in enumerate(clips)]
    assert aligned.log_probability.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@given(CLIPS, DURATIONS, st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_shares_are_the_derivatives_and_nothing_else_matters(clips, durations, seed):
    arcs = arcs_of(durations)
    weights, frames, labels = lattice(clips, arcs, seed)
    weights = weights.double()
    step = 1e-4

    aligned = align(weights, arcs, frames, labels)

    for place in itertools.islice(itertools.product(*map(range, weights.shape)), seed % 7, None, 7):
        ahead, behind = weights.clone(), weights.clone()
        ahead[place] += step
        behind[place] -= step
        more, less = (align(each, arcs, frames, labels).log_probability[place[1]] for each in (ahead, behind))
        slope = 0.0 if more == -torch.inf else (more - less).item() / (2 * step)
        assert aligned.shares[place].item() == pytest.approx(slope, abs=1e-5), place


def test_the_arcs_of_the_two_kinds_of_transducers():
    assert arcs_of(()) == (Arc(1, 0), Arc(0, 1))
    assert arcs_of((0, 1, 2)) == (Arc(1, 0), Arc(2, 0), Arc(0, 1), Arc(1, 1), Arc(2, 1))


def test_weights_in_the_padding_change_nothing():
    arcs = arcs_of((0, 1, 2))
    weights, frames, labels = lattice([(5, 3), (2, 1)], arcs, 0)
    other = weights.clone()
    diagonal, emitted = (torch.arange(size) for size in weights.shape[2:])
    frame = diagonal[:, None] - emitted
    other[:, 0, (frame < 0) | (frame >= 5)] = torch.inf
    other[:, 1, (frame < 0) | (frame >= 2) | (emitted > 1)] = torch.nan

    assert torch.equal(align(weights, arcs, frames, labels).shares, align(other, arcs, frames, labels).shares)


def test_thousands_of_frames_leave_their_digits():
    """Every alignment leaves every frame by one blank, so the shares of a frame's blanks add up to 1."""
    arcs = arcs_of(())
    weights, frames, labels = lattice([(3000, 200)], arcs, 1)

    shares = by_frame(align(50 * weights, arcs, frames, labels).shares, 3000)

    torch.testing.assert_close(shares[0].sum(2), torch.ones(1, 3000), atol=1e-5, rtol=0)
    torch.testing.assert_close(shares[1, 0].sum(0)[:-1], torch.ones(200), atol=1e-5, rtol=0)
