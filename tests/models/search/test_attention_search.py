"""The search of an attention decoder in CUDA graphs finds what it finds without; rehearsed on a CPU."""

import math

import pytest
import torch

from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder
from models.search.attention import length_bound
from models.search.attention_search import AttentionSearch
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


def test_where_nothing_can_be_captured_the_host_drives(monkeypatch, caplog):
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: operation not supported")

    monkeypatch.setattr("models.search.attention_search.GraphDriver", refuse)
    model, inputs = decoder(beam=1), batch(3, 20, "cpu", seed=0)
    graphed, eager = (AttentionSearch(model, END, graphed=one) for one in (True, False))

    for _ in range(2):
        assert search(graphed, *inputs) == search(eager, *inputs)
    assert len(caplog.records) == 1


def test_a_size_that_would_take_too_much_of_the_memory_is_driven_by_the_host():
    model, small, large = decoder(beam=1), batch(1, 20, "cpu", seed=0), batch(16, 50, "cpu", seed=0)
    keys_and_values = 2 * 2 * 16 * (64 + 64) * 8  # of a row of up to 64 frames: layers, width, positions, float64
    driver = AttentionSearch(model, END, graphed=True, free=lambda _: 8 * keys_and_values)
    eager = AttentionSearch(model, END, graphed=False)
    read = []
    model.layers[0].cross_attention.key.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].size(1)))

    for inputs in (small, large):
        assert search(driver, *inputs) == search(eager, *inputs)

    assert read[-2:] == [50, 50]  # what has no room is not padded to a size
    assert len(driver.sizes) == 1
    assert not driver.sizes.refused


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
