"""CTC is minus the log of the summed probability of all alignments, per label; impossible clips count nothing."""

from itertools import groupby, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from training.objective import LabelCounts, ctc_objective

LABELS = 2  # the blank is label 2


def by_enumeration(probabilities, tokens):
    """Sum over every path of the frames that collapses to ``tokens``."""
    total = 0.0
    for path in product(range(LABELS + 1), repeat=len(probabilities)):
        if [label for label, _ in groupby(path) if label != LABELS] == tokens:
            total += np.prod([frame[label] for frame, label in zip(probabilities, path, strict=True)])
    return -np.log(total)


def ctc_loss(logits, lengths, transcripts):
    tokens = pad_sequence([torch.tensor(text, dtype=torch.int64) for text in transcripts], batch_first=True)
    batch = SimpleNamespace(tokens=tokens, token_lengths=torch.tensor([len(text) for text in transcripts]))
    return ctc_objective(logits, torch.tensor(lengths), batch, LabelCounts(sum(map(len, transcripts)), 0.0))


def test_it_equals_the_sum_over_all_alignments():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(LABELS + 1), (3, 5))
    transcripts, lengths = [[0, 1], [1, 1], []], [5, 4, 3]

    loss = ctc_loss(torch.tensor(probabilities).log(), lengths, transcripts)

    expected = [by_enumeration(row[:n], text) for row, n, text in zip(probabilities, lengths, transcripts, strict=True)]
    assert loss.item() == pytest.approx(sum(expected) / 4)


def test_a_transcript_longer_than_its_clip_has_no_loss_and_no_gradient():
    logits = torch.zeros(1, 2, LABELS + 1, requires_grad=True)

    loss = ctc_loss(logits, [2], [[0, 0]])
    loss.backward()

    assert loss.item() == 0
    assert not logits.grad.any()
