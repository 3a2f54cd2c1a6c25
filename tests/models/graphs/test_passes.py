"""Passes in CUDA graphs give the same as without graphs; rehearsed on a CPU."""

import itertools

import pytest
import torch

from models import load_model
from models.device.fast_paths import FAST_PATHS, FastPath, FastPaths
from models.graphs.passes import GraphedPasses, _Prepared
from tests.models import golden_data as golden
from tests.models.no_waiting import no_waiting

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NAME = "hybrid-tdt-ctc-bpe"
SAMPLES = 12_000
TOLERANCE = 1e-4


@pytest.fixture(params=DEVICES)
def model(request):
    return load_model(golden.GOLDEN / NAME / "model.nemo", device=request.param).model


def passes(model, most_samples=4 * SAMPLES):
    return GraphedPasses(model.passes.works, model.device, most_samples)


def batch(rows, samples=SAMPLES, seed=0, padding=0.0):
    random = torch.Generator().manual_seed(seed)
    waveforms = 0.1 * torch.randn(rows, samples, generator=random)
    lengths = torch.randint(0, samples + 1, (rows,), generator=random)
    for row, length in zip(waveforms, lengths, strict=True):
        row[length:] = padding
    return waveforms, lengths


def assert_same(model, graphed, inputs):
    on_device = [tensor.to(model.device) for tensor in inputs]
    with torch.no_grad():
        encoded, ctc_tokens = model.passes.works
        frames, *counts = encoded(*on_device, inputs[1])
        (tokens,) = ctc_tokens(*on_device, inputs[1])
    found, *found_counts = graphed(encoded, *inputs)
    assert torch.allclose(found, frames, atol=TOLERANCE, rtol=TOLERANCE)
    assert [count.tolist() for count in found_counts] == [count.tolist() for count in counts]
    # Without the last quarter, the confidence, because its bits do not show how close two values are.
    (found,) = graphed(ctc_tokens, *inputs)
    assert found.shape == tokens.shape
    assert found[:, : 3 * tokens.size(1) // 4].tolist() == tokens[:, : 3 * tokens.size(1) // 4].tolist()


def test_ragged_batches_in_any_order_give_what_they_give_without_graphs(model):
    graphed = passes(model)
    graphed.prepare(4, SAMPLES)
    graphed.prepare(4, SAMPLES // 2)

    for seed, rows in enumerate((4, 1, 3, 2, 4)):
        for samples in (SAMPLES, SAMPLES // 2):
            inputs = batch(rows, samples, seed, padding=float("nan"))
            assert_same(model, graphed, inputs)
    assert len(graphed.sizes) == 2 * 8
    assert not graphed.sizes.refused


def test_a_batch_without_a_prepared_graph_runs_without_one(model):
    graphed = passes(model)
    graphed.prepare(2, SAMPLES)

    for inputs in (batch(3), batch(2, SAMPLES + 160), batch(1, 0)):
        assert_same(model, graphed, inputs)
    assert len(graphed.sizes) == 2 * 2


def test_only_small_batches_are_prepared(model):
    graphed = passes(model, most_samples=3 * SAMPLES)

    graphed.prepare(100, SAMPLES)
    graphed.prepare(1, 3 * SAMPLES + 1)
    graphed.prepare(1, 0)

    known = [graphed.sizes.known((model.passes.works[0], rows, SAMPLES)) is not None for rows in (1, 2, 3, 4)]
    assert known == [True, True, True, False]
    assert len(graphed.sizes) == 2 * 3


def test_after_they_are_dropped_batches_run_without_graphs_until_others_are_prepared(model):
    graphed = passes(model)
    graphed.prepare(4, SAMPLES)
    graphed.clear()

    assert_same(model, graphed, batch(3))
    assert len(graphed.sizes) == 0
    graphed.prepare(2, SAMPLES)

    for rows in (3, 2, 1):
        assert_same(model, graphed, batch(rows))
    assert len(graphed.sizes) == 2 * 2


def test_a_batch_runs_in_the_smallest_graph_that_is_enough(model):
    graphed = passes(model, most_samples=13 * SAMPLES)
    graphed.prepare(100, SAMPLES)
    ran = []
    graphed.sizes.known = lambda size: ran.append(size[1])

    for rows in range(1, 15):
        graphed(model.passes.works[0], *batch(rows))

    assert ran == [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 13]  # there is no graph for 14


def test_where_nothing_can_be_captured_the_host_launches(monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("CUDA error: operation not supported")

    monkeypatch.setattr("models.graphs.passes.captured", refuse)
    model, inputs = golden.model(NAME).model, batch(2)
    graphed = passes(model)

    graphed.prepare(4, SAMPLES)

    assert_same(model, graphed, inputs)
    assert len(caplog.records) == 1
    assert len(graphed.sizes) == 0


@pytest.mark.gpu
def test_a_prepared_model_finds_nemos_tokens():
    model = load_model(golden.GOLDEN / NAME / "model.nemo", device="cuda").model
    clips = [torch.from_numpy(golden.clip(name).copy()) for name in golden.CLIPS]
    lengths = torch.tensor([len(clip) for clip in clips])
    waveforms = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)

    sizes = model.prepare(len(clips), waveforms.size(1))

    assert sizes[0] == len(clips)
    assert len(model.passes.sizes) > 0
    for decoder in model.decoders:
        found = model.recognize_batch(waveforms, lengths, decoder=decoder).transcripts()
        assert [hypothesis.tokens for hypothesis in found] == [
            golden.transcript(NAME, name, decoder)["tokens"] for name in golden.CLIPS
        ]


@pytest.mark.gpu
def test_the_host_does_not_wait_for_the_device():
    model = load_model(golden.GOLDEN / NAME / "model.nemo", device="cuda").model
    model.prepare(4, SAMPLES)
    waveforms, lengths = (tensor.pin_memory() for tensor in batch(4))
    unprepared = tuple(tensor.pin_memory() for tensor in batch(5))
    for inputs, work in itertools.product(((waveforms, lengths), unprepared), model.passes.works):
        model.passes(work, *inputs)
        with no_waiting():
            model.passes(work, *inputs)


@pytest.mark.gpu
def test_a_thousand_batches_take_no_more_memory_than_the_first():
    model = load_model(golden.GOLDEN / NAME / "model.nemo", device="cuda").model
    model.prepare(4, SAMPLES)
    batches = [batch(rows) for rows in (1, 4, 3, 2)]
    for inputs in batches:
        model.recognize_batch(*inputs).transcripts()
    taken = torch.cuda.memory_allocated()

    for number in range(1000):
        model.recognize_batch(*batches[number % len(batches)]).transcripts()

    assert torch.cuda.memory_allocated() <= taken


@pytest.mark.parametrize(
    ("change", "state", "kept"),
    [
        (lambda tensor: tensor, "used", 4),
        (lambda tensor: 2 * tensor, "disagreed", 0),
        (lambda tensor: tensor * float("nan"), "disagreed", 0),
    ],
)
def test_graphs_that_repeat_something_else_are_dropped_and_others_kept(model, monkeypatch, change, state, kept):
    monkeypatch.setattr(FastPaths, "suits", lambda *_: True)
    run = _Prepared.run
    monkeypatch.setattr(_Prepared, "run", lambda *args: tuple(change(tensor) for tensor in run(*args)))
    graphed = passes(model)

    graphed.prepare(2, SAMPLES)

    assert FAST_PATHS.states()[FastPath.ENCODER_GRAPHS] == state
    assert len(graphed.sizes) == kept
    assert_same(model, graphed, batch(2))


def test_plainly_no_graph_is_replayed(model, monkeypatch):
    graphed = passes(model)
    graphed.prepare(2, SAMPLES)
    monkeypatch.setattr(_Prepared, "run", None)

    with FAST_PATHS.plainly():
        assert_same(model, graphed, batch(2))
