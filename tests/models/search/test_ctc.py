"""CTC search finds what merging repeats and dropping blanks frame by frame finds."""

from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.search.ctc import FIELDS, ctc_greedy

BLANK = 3
paths = st.lists(st.sampled_from([0, 0, 1, 2, BLANK, BLANK]), max_size=30)


def logits_of(batch):
    """Logits [batch, frames, labels + 1] whose best labels are the paths; zeros, so label 0, beyond their ends."""
    logits = torch.zeros(len(batch), max(map(len, batch)), BLANK + 1)
    for row, path in zip(logits, batch, strict=True):
        for frame, label in enumerate(path):
            row[frame, label] = 1 + torch.rand(())
    return logits, torch.tensor([len(path) for path in batch])


@settings(max_examples=200, deadline=None)
@given(st.lists(paths, min_size=1, max_size=5))
def test_every_row_has_the_runs_of_its_path(batch):
    logits, lengths = logits_of(batch)

    rows = ctc_greedy(logits, lengths, BLANK).rows()

    for row, path, scores in zip(rows, batch, logits, strict=True):
        runs = [(label, [frame for frame, _ in run]) for label, run in groupby(enumerate(path), key=lambda x: x[1])]
        spoken = [(label, run[0], run[-1] + 1) for label, run in runs if label != BLANK]
        assert list(zip(row.tokens, row.frames, row.ends, strict=True)) == spoken
        assert row.confidence == pytest.approx([float(scores[start].softmax(0)[label]) for label, start, _ in spoken])
        assert row.durations is None


@settings(max_examples=50, deadline=None)
@given(st.lists(paths, min_size=1, max_size=5), st.sampled_from([float("nan"), float("inf"), -7.0]))
def test_what_lies_beyond_the_lengths_changes_nothing(batch, garbage):
    logits, lengths = logits_of([*batch, [0] * 31])
    beyond = torch.arange(logits.size(1)) >= lengths[:, None]

    clean = ctc_greedy(logits, lengths, BLANK).rows()

    assert ctc_greedy(logits.masked_fill(beyond[..., None], garbage), lengths, BLANK).rows() == clean


def test_the_lowest_index_wins_a_tie():
    [row] = ctc_greedy(torch.ones(1, 1, BLANK + 1), torch.tensor([1]), BLANK).rows()

    assert (row.tokens, row.confidence) == ([0], [0.25])


def test_bfloat16_logits_give_the_same_tokens():
    logits, lengths = logits_of([[0, BLANK, 1, 1, 2]])

    result = ctc_greedy(logits.bfloat16(), lengths, BLANK)

    assert result.confidence.dtype == torch.float32
    assert result.fields == FIELDS
    assert result.rows()[0].tokens == [0, 1, 2]


def test_logits_that_are_not_numbers_come_back():
    result = ctc_greedy(torch.full((2, 4, BLANK + 1), float("nan")), torch.tensor([4, 2]), BLANK)

    assert (result.counts <= torch.tensor([4, 2])).all()


def test_an_utterance_without_frames_has_no_tokens():
    assert [row.tokens for row in ctc_greedy(torch.zeros(2, 0, 4), torch.tensor([0, 0]), BLANK).rows()] == [[], []]
    assert ctc_greedy(torch.zeros(0, 5, 4), torch.zeros(0).long(), BLANK).rows() == []
