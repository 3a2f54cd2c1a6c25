"""The search of an attention decoder in CUDA graphs finds what it finds without; rehearsed on a CPU."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import AttentionDecoderConfig
from models.device.fast_paths import FAST_PATHS, FastPaths
from models.graphs.arena import Arena
from models.graphs.sizes import Sizes, frame_size, row_sizes
from models.heads.attention_decoder import AttentionDecoder
from models.search.attention import length_bound
from models.search.attention_search import AttentionSearch
from models.search.drivers.graph import GraphDriver
from tests.models.no_waiting import no_waiting

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BEAMS = [1, 3]
SIZES = [(1, 20), (5, 40), (16, 64), (3, 70), (17, 50)]
LABELS, END, FACTOR = 30, 3, 8


def decoder(beam, margin=5):
    config = AttentionDecoderConfig(16, 2, 2, 32, "relu", positions=64, length_margin=margin, beam=beam)
    torch.manual_seed(1)
    made = AttentionDecoder(config, 12, LABELS).double().eval().requires_grad_(requires_grad=False)
    made.embedding.weight.mul_(1.5)
    made.output_bias[END] = 1.0  # texts end here and there
    return made


def batch(rows, frames, device, seed):
    random = torch.Generator().manual_seed(seed)
    encoded = 3 * torch.randn(rows, frames, 12, dtype=torch.float64, generator=random)
    lengths = torch.randint(0, frames + 1, (rows,), generator=random)
    prompts = torch.randint(4, LABELS, (rows, 4), generator=random)
    return encoded.to(device), lengths.to(device), prompts.to(device)


def search(driver, encoded, lengths, prompts):
    bound = length_bound(driver._config, lengths * FACTOR, FACTOR, encoded.size(1))
    return driver.search(encoded, lengths, prompts, bound).rows()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("beam", BEAMS)
def test_ragged_batches_of_changing_sizes_find_what_the_host_would(device, beam):
    model = decoder(beam).to(device)
    graphed, eager = (AttentionSearch(model, END, graphed=one) for one in (True, False))

    found = []
    for seed in range(2):
        for rows, frames in SIZES:
            inputs = batch(rows, frames, device, seed)
            found.append(search(graphed, *inputs))
            assert found[-1] == search(eager, *inputs)
    assert not graphed.sizes.refused
    assert len(graphed.sizes) == 4
    lengths = {len(row.tokens) for rows in found for row in rows}
    assert len(lengths) > 5


@pytest.mark.slow
@given(st.sampled_from(BEAMS), st.permutations([(1, 20), (16, 64), (3, 70), (2, 30)]))
@settings(max_examples=8, deadline=None)
def test_sizes_in_any_order_share_memory_and_find_what_the_host_would(beam, sizes):
    model = decoder(beam)
    graphed, eager = (AttentionSearch(model, END, graphed=one) for one in (True, False))

    for seed in range(2):
        for rows, frames in sizes:
            inputs = batch(rows, frames, "cpu", seed)
            assert search(graphed, *inputs) == search(eager, *inputs)

    largest = Arena(torch.device("cpu"))
    largest.tensors(graphed._state((16, 64, 4, 64), torch.float64))
    assert len(graphed.sizes) == 4
    assert graphed.sizes.arena.bytes <= 1.25 * largest.bytes


@pytest.mark.slow
@given(st.sampled_from([4, 8, 24]), st.sampled_from([240, 960, 1920]), st.randoms(use_true_random=True))
@settings(max_examples=30, deadline=None)
def test_the_sizes_of_a_canary_together_take_little_more_than_the_largest(layers, budget, random):
    config = AttentionDecoderConfig(1024, layers, 8, 16, "relu", positions=1024, length_margin=50, beam=1)
    with torch.device("meta"):
        driver = AttentionSearch(AttentionDecoder(config, 1024, 8), END, graphed=True)
    warm_up = []
    for seconds in (40.1, 32.0, 24.0, 16.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.0):  # the buckets of a service
        frames = int(seconds / 0.08) + 1
        longest = frame_size(min(1024, frames + 51))
        warm_up += [(rows, frame_size(frames), 9, longest) for rows in row_sizes(int(budget // seconds))]
    states = [driver._state(size, torch.bfloat16) for size in warm_up]
    largest = max(sum(layout.bytes for layout in state) for state in states)

    for order, most in ((states, 1.1), (random.sample(states, len(states)), 1.35)):
        arena = Arena(torch.device("meta"))
        for state in order:
            arena.tensors(state)
        assert arena.bytes <= most * largest


@pytest.mark.parametrize("beam", BEAMS)
def test_a_recording_that_gives_no_numbers_spoils_no_later_batch(beam):
    model = decoder(beam)
    graphed, eager = (AttentionSearch(model, END, graphed=one) for one in (True, False))
    spoiled, later = (batch(4, 20, "cpu", seed) for seed in range(2))
    spoiled[0][1] = torch.nan

    assert any(row.confidence and math.isnan(sum(row.confidence)) for row in search(graphed, *spoiled))

    assert search(graphed, *later) == search(eager, *later)


@pytest.mark.parametrize("beam", BEAMS)
def test_a_batch_without_rows_or_without_room_is_empty(beam):
    model = decoder(beam, margin=-30)
    driver = AttentionSearch(model, END, graphed=True)

    assert search(driver, *batch(0, 20, "cpu", seed=0)) == []
    assert [row.tokens for row in search(driver, *batch(2, 20, "cpu", seed=0))] == [[], []]
    assert len(driver.sizes) == 0


def test_a_size_that_would_take_too_much_of_the_memory_is_driven_by_the_host(caplog):
    model, small, large = decoder(beam=1), batch(1, 20, "cpu", seed=0), batch(16, 50, "cpu", seed=0)
    keys_and_values = 2 * 2 * 16 * (64 + 64) * 8  # of a row of up to 64 frames: layers, width, positions, float64
    driver, eager = (AttentionSearch(model, END, graphed=one) for one in (True, False))
    driver.sizes = Sizes(torch.device("cpu"), lambda _: 8 * keys_and_values)
    read = []
    model.layers[0].cross_attention.key.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].size(1)))

    for inputs in (small, large):
        assert search(driver, *inputs) == search(eager, *inputs)

    assert read[-2:] == [50, 50]  # what has no room is not padded to a size
    assert driver.sizes.counted() == {"captured": 1, "refused": 0, "no_room": 1}
    assert "no room" in caplog.text


@pytest.mark.gpu
@pytest.mark.parametrize("beam", BEAMS)
def test_the_graphs_of_all_sizes_share_the_memory_of_their_steps(beam):
    def pools():
        return {segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()}

    driver, before = AttentionSearch(decoder(beam).cuda(), END, graphed=True), pools()
    for rows, frames in SIZES:
        search(driver, *batch(rows, frames, "cuda", seed=1))

    assert len(driver.sizes) == 4
    assert len(pools() - before) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("beam", BEAMS)
def test_the_host_waits_for_nothing_but_the_flag_of_the_replay_before(beam):
    model = decoder(beam).cuda()
    driver = AttentionSearch(model, END, graphed=True)
    encoded, lengths, prompts = batch(64, 50, "cuda", seed=1)
    bound = length_bound(model.config, lengths * FACTOR, FACTOR, encoded.size(1))
    driver.search(encoded, lengths, prompts, bound)
    with no_waiting():
        driver.search(encoded, lengths, prompts, bound)


def replays_nothing(patch):
    patch.setattr(GraphDriver, "until_done", lambda self, most: most)


@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize(("spoil", "state"), [(lambda _: None, "used"), (replays_nothing, "disagreed")])
def test_graphs_that_write_other_tokens_give_way_to_the_host(monkeypatch, beam, spoil, state):
    monkeypatch.setattr(FastPaths, "suits", lambda *_: True)
    spoil(monkeypatch)
    model = decoder(beam)
    graphed, eager = (AttentionSearch(model, END, graphed=one) for one in (True, False))
    inputs = batch(5, 40, "cpu", 0)
    monkeypatch.setattr("models.heads.attention_decoder.decoder_step_on", lambda *_: None)

    found = search(graphed, *inputs)

    assert FAST_PATHS.states()["search_graphs"] == state
    assert found == search(eager, *inputs)
