"""CTC is minus the log of the summed probability of all alignments, per label; impossible clips count nothing."""

from itertools import groupby, product

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from training.buckets import Bucket
from training.objective import ctc_objective, label_counts, weighted
from training.probe import noise
from training.recipe import Objective
from training.recipe_shapes import Student
from training.student import student_config

LABELS = 2  # the blank is label 2


def by_enumeration(probabilities, tokens):
    """Sum over every path of the frames that collapses to ``tokens``."""
    total = 0.0
    for path in product(range(LABELS + 1), repeat=len(probabilities)):
        if [label for label, _ in groupby(path) if label != LABELS] == tokens:
            total += np.prod([frame[label] for frame, label in zip(probabilities, path, strict=True)])
    return -np.log(total)


def test_it_equals_the_sum_over_all_alignments():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(LABELS + 1), (3, 5))
    transcripts, lengths = [[0, 1], [1, 1], []], [5, 4, 3]

    loss = ctc_objective(
        torch.tensor(probabilities).log(),
        torch.tensor(lengths),
        torch.tensor([[0, 1], [1, 1], [0, 0]]),
        torch.tensor([2, 2, 0]),
        4,
    )

    expected = [by_enumeration(row[:n], text) for row, n, text in zip(probabilities, lengths, transcripts, strict=True)]
    assert loss.item() == pytest.approx(sum(expected) / 4)


def test_a_transcript_longer_than_its_clip_has_no_loss_and_no_gradient():
    logits = torch.zeros(1, 2, LABELS + 1, requires_grad=True)

    loss = ctc_objective(logits.log_softmax(-1), torch.tensor([2]), torch.tensor([[0, 0]]), torch.tensor([2]), 2)
    loss.backward()

    assert loss.item() == 0
    assert not logits.grad.any()


@pytest.mark.parametrize(("weight", "times"), [(0.3, 1), (0.0, 0)])
def test_the_log_probabilities_of_ctc_are_computed_only_if_it_has_a_weight(weight, times):
    objective = Objective(ctc=weight)
    batch = noise(student_config(Student(layers=1, width=8, heads=2), LABELS), Bucket(0.5, 2), 1)
    logits, lengths = torch.zeros(1, 9, LABELS + 1), torch.tensor([9])

    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        found = weighted(logits, torch.ones(()), None, lengths, batch, objective, label_counts(batch, objective))

    assert [event.name for event in profiled.events()].count("aten::log_softmax") == times
    assert (found.ctc is None) == (weight == 0)
