"""The graph driver finds what look-ahead finds, without waiting, captured once; rehearsed on a CPU."""

import pytest
import torch

from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.look_ahead import look_ahead
from tests.models.no_waiting import no_waiting
from tests.models.search.greedy_twin import random_transducer
from tests.models.search.phrase_twin import PhraseTwin, in_tensors
from tests.models.search.test_transducers import language_model

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = [(1, 20), (5, 40), (16, 64), (3, 70), (17, 50)]


def batch(rows, frames, device, seed):
    random = torch.Generator().manual_seed(seed)
    encoded = 3 * torch.randn(rows, frames, 6, dtype=torch.float64, generator=random)
    lengths = torch.randint(0, frames + 1, (rows,), generator=random)
    return encoded.to(device), lengths.to(device)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)], ids=["rnnt", "tdt"])
def test_ragged_batches_of_changing_sizes_find_what_the_host_would(device, durations):
    predictor, joint = random_transducer(5, durations=durations, layers=2, blank_bias=1.0)
    driver = GraphedLookAhead(predictor.to(device), joint.to(device), max_symbols=5, fused=False)

    for seed in range(3):
        for rows, frames in SIZES:
            encoded, lengths = batch(rows, frames, device, seed)
            wanted = look_ahead(encoded, lengths, predictor, joint, 5).rows()
            assert driver.search(encoded, lengths).rows() == wanted
    assert not driver.sizes.refused
    assert len(driver.sizes) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_from_256_rows_on_a_step_scores_half_as_many_frames(device):
    predictor, joint = random_transducer(5, durations=(), blank_bias=1.0)
    driver = GraphedLookAhead(predictor.to(device), joint.to(device), max_symbols=5, fused=False)
    scored = set()
    joint.register_forward_hook(lambda _, inputs, __: scored.add(inputs[0].shape[:2]))

    for rows in (1, 128, 129):
        driver.search(*batch(rows, 3, device, seed=1))

    assert scored == {(1, 8), (128, 8), (256, 4)}


@pytest.mark.gpu
@pytest.mark.parametrize("twin", [None, PhraseTwin({(0, 1): 3.0, (3,): 1.0}, [True, False] * 2)], ids=["", "phrases"])
@pytest.mark.parametrize("weight", [None, 0.5], ids=["alone", "with a language model"])
@pytest.mark.parametrize("loops", [True, False], ids=["looped", "replayed"])
def test_the_host_waits_for_nothing_but_the_flag_of_a_replay(loops, weight, twin):
    predictor, joint = random_transducer(5, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
    model = language_model(weight).to(torch.device("cuda")) if weight else None
    driver = GraphedLookAhead(
        predictor.cuda(), joint.cuda(), max_symbols=5, fused=False, loops=loops, language_model=model
    )
    inputs = batch(64, 125, "cuda", seed=1)
    phrases = in_tensors([twin] * 64, device="cuda") if twin else None
    driver.search(*inputs, phrases=phrases)
    with no_waiting():
        found = driver.search(*inputs, phrases=phrases)

    wanted = look_ahead(*inputs, predictor, joint, 5, phrases=phrases, language_model=model)
    assert found.rows() == wanted.rows()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_batches_that_are_given_before_the_last_is_fetched_find_what_they_find_alone(device):
    predictor, joint = random_transducer(5, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
    driver = GraphedLookAhead(predictor.to(device), joint.to(device), max_symbols=5, fused=False)
    batches = [batch(rows, frames, device, seed) for seed in range(5) for rows, frames in SIZES]
    alone = [driver.search(*inputs).rows() for inputs in batches]

    # What it reads may be overwritten at once, as the next batch of an encoder's graph does.
    given = []
    for encoded, lengths in batches:
        shared = encoded.clone(), lengths.clone()
        given.append(driver.search(*shared))
        for tensor in shared:
            tensor.zero_()

    assert [found.rows() for found in given] == alone


@pytest.mark.gpu
def test_a_thousand_batches_take_no_more_memory_than_the_first():
    predictor, joint = random_transducer(5, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
    driver = GraphedLookAhead(predictor.cuda(), joint.cuda(), max_symbols=5, fused=False)
    batches = [batch(rows, frames, "cuda", seed=2) for rows, frames in SIZES]
    for inputs in batches:
        driver.search(*inputs)
    taken = torch.cuda.memory_allocated()

    for number in range(1000):
        driver.search(*batches[number % len(batches)])

    assert torch.cuda.memory_allocated() <= taken


@pytest.mark.gpu
def test_where_a_loop_is_refused_steps_are_replayed(monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("CUDA error: CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr("models.search.drivers.graph.DeviceLoop", refuse)
    predictor, joint = random_transducer(5, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
    driver = GraphedLookAhead(predictor.cuda(), joint.cuda(), max_symbols=5, fused=False)
    inputs = batch(5, 40, "cuda", seed=1)

    for _ in range(2):
        assert driver.search(*inputs).rows() == look_ahead(*inputs, predictor, joint, 5).rows()

    assert len(caplog.records) == 1
    assert not driver.sizes.refused
