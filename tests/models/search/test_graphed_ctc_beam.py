"""CTC beam search in CUDA graphs finds what it finds without them, and the host does not wait."""

from copy import deepcopy
from functools import cache
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.device.fast_paths import FAST_PATHS, FastPaths
from models.graphs.sizes import Sizes
from models.search.ctc_alignment import CtcAlignment
from models.search.ctc_beam import CtcBeam, ctc_beam
from models.search.drivers.graph import GraphDriver
from models.search.graphed_ctc_beam import GraphedCtcBeam
from tests.models.no_waiting import no_waiting
from tests.models.search.test_ctc_beam import BLANK, language_model, random_logits

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BEAM = 4
# The second, fourth and fifth share a size, each with fewer frames than the one before.
SIZES = [(1, 20), (5, 64), (16, 70), (7, 33), (5, 3), (17, 50)]


def batch(rows, frames, seed, device):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, frames + 1, (rows,), generator=random)
    return random_logits(seed, rows, frames).to(device), lengths.to(device)


@cache
def model_on(device):
    return deepcopy(language_model()).to(torch.device(device))


def graphed(device):
    return GraphedCtcBeam(BLANK, model_on(device), torch.device(device), BEAM)


def by_the_host(logits, lengths):
    return ctc_beam(logits, lengths, BLANK, model_on(logits.device.type), BEAM).rows()


def assert_same(found, wanted):
    assert [(row.tokens, row.frames, row.ends) for row in found] == [
        (row.tokens, row.frames, row.ends) for row in wanted
    ]
    for one, other in zip(found, wanted, strict=True):
        assert one.confidence == pytest.approx(other.confidence, abs=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_ragged_batches_of_changing_sizes_find_what_the_host_would(device):
    driver = graphed(device)
    for again in range(2):
        for seed, (rows, frames) in enumerate(SIZES):
            logits, lengths = batch(rows, frames, 10 * again + seed, device)
            wanted = by_the_host(logits, lengths)
            assert any(row.tokens for row in wanted)
            assert_same(driver.search(logits, lengths).rows(), wanted)
    assert not driver.sizes.refused
    assert len(driver.sizes) == 4


@given(st.permutations(SIZES))
@settings(max_examples=8, deadline=None)
def test_sizes_in_any_order_share_memory_and_find_what_the_host_would(sizes):
    driver = graphed("cpu")

    def captured(work, *_):
        for _ in range(3):  # as before a capture, in memory that other sizes have written
            work()
        return work

    for seed, (rows, frames) in enumerate(sizes):
        logits, lengths = batch(rows, frames, seed, "cpu")
        for block in driver.sizes.arena._blocks:
            block.fill_(0xFF)  # not a number, as any float
        with patch("models.search.drivers.graph.captured", captured):
            found = driver.search(logits, lengths).rows()
        assert_same(found, by_the_host(logits, lengths))

    alone = graphed("cpu")
    alone.search(*batch(17, 50, 0, "cpu"))  # the largest size
    assert driver.sizes.arena.bytes <= 1.6 * alone.sizes.arena.bytes


@pytest.mark.parametrize("device", DEVICES)
def test_searches_queued_before_the_first_is_fetched_find_what_they_find_alone(device):
    driver = graphed(device)
    given = [batch(5, 40, seed, device) for seed in range(4)]

    found = [driver.search(*inputs) for inputs in given]

    for one, (logits, lengths) in zip(found, given, strict=True):
        assert_same(one.rows(), by_the_host(logits, lengths))


def test_a_size_without_room_is_driven_by_the_host():
    largest = torch.zeros(4, 64, BLANK + 1)
    state = [*CtcBeam.layouts(largest, BEAM), CtcAlignment.steps_layout(4, 64, columns=64)]
    taken = sum(layout.bytes for layout in state)
    driver = graphed("cpu")
    driver.sizes = Sizes(torch.device("cpu"), lambda _: 8 * taken)
    for rows, frames in ((4, 64), (4, 65), (5, 64)):
        logits, lengths = batch(rows, frames, 1, "cpu")
        assert_same(driver.search(logits, lengths).rows(), by_the_host(logits, lengths))
    assert len(driver.sizes) == 1


@pytest.mark.parametrize(("rows", "frames"), [(0, 5), (2, 0)])
def test_without_rows_or_frames_there_are_no_tokens(rows, frames):
    found = graphed("cpu").search(torch.zeros(rows, frames, BLANK + 1), torch.zeros(rows, dtype=torch.int64))

    assert [row.tokens for row in found.rows()] == [[]] * rows


@pytest.mark.gpu
def test_the_host_does_not_wait():
    driver = graphed("cuda")
    inputs = batch(16, 100, 1, "cuda")
    driver.search(*inputs)
    with no_waiting():
        driver.search(*inputs)


def stops_early(patch):
    patch.setattr(GraphDriver, "until_done", lambda self, most: self._replay() or most)
    patch.setattr("models.search.drivers.graph.STEPS_A_REPLAY", 2)


@pytest.mark.parametrize(("spoil", "state"), [(lambda _: None, "used"), (stops_early, "disagreed")])
def test_graphs_that_find_other_texts_give_way_to_the_host(monkeypatch, spoil, state):
    monkeypatch.setattr(FastPaths, "suits", lambda *_: True)
    spoil(monkeypatch)
    driver = graphed("cpu")
    logits, lengths = batch(5, 40, 3, "cpu")

    found = driver.search(logits, lengths).rows()

    assert FAST_PATHS.states() == {"search_graphs": state}
    assert_same(found, by_the_host(logits, lengths))
