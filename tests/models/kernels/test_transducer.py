"""The kernels of a look-ahead step give what their plain twins give: on a GPU, and in Triton's interpreter on a CPU."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from models.device.fast_paths import FastPaths
from models.heads.transducer import Joint, Predictor
from models.kernels.tiles import Tile, chosen_tile
from models.search import fused_joint as joint_kernels
from models.search import fused_predictor as predictor_kernels
from models.search.drivers.eager import repeat
from models.search.drivers.graph import GraphDriver
from models.search.fused_joint import SCORES_OF_FEW, SCORES_OF_MANY, JointKernel
from models.search.fused_look_ahead import FusedLookAhead
from models.search.fused_predictor import UNITS_OF_FEW, UNITS_OF_MANY, PredictorKernels
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.label_masks import LabelMasks
from models.search.look_ahead import look_ahead
from models.search.state import TransducerState

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 1e-2}
TDT = (0, 1, 2, 3, 4)

pytestmark = pytest.mark.parametrize("device", DEVICES)
# The interpreter takes seconds an example: whatever fails is shown as it was found.
few_examples = settings(deadline=None, max_examples=12, phases=(Phase.reuse, Phase.generate))
dtypes = st.sampled_from(sorted(TOLERANCE, key=str))


def random_joint(draw, labels, durations, width):
    torch.manual_seed(draw)
    return Joint(6, 5, width, labels, durations).requires_grad_(requires_grad=False)


@few_examples
@given(
    seed=st.integers(0, 1000),
    dtype=dtypes,
    rows=st.integers(1, 4),
    frames=st.integers(1, 9),
    window=st.sampled_from([1, 3, 8]),
    labels=st.integers(1, 140),
    width=st.integers(1, 80),
    durations=st.sampled_from([(), TDT]),
    tile=st.sampled_from([SCORES_OF_FEW, SCORES_OF_MANY]),
)
def test_scores_are_those_of_the_joint(device, seed, dtype, rows, frames, window, labels, width, durations, tile):
    joint = random_joint(seed, labels, durations, width).to(device, dtype)
    projected, predicted = torch.randn(rows, frames, width), torch.randn(rows, width)
    projected, predicted = projected.to(device, dtype), predicted.to(device, dtype)
    time = torch.randint(0, frames + 3, (rows,), device=device)
    lengths = torch.randint(0, frames + 1, (rows,), device=device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_kernels, "chosen_tile", lambda *_: tile)
        kernel = JointKernel(joint, rows, window)
    kernel.scores.best.fill_(7.0)
    scores = kernel(projected, predicted, time, lengths)

    ahead = time[:, None] + torch.arange(window, device=device)
    wanted_frames = ahead < lengths[:, None]
    assert (scores.best[~wanted_frames] == 7.0).all()  # scores that are not read are not written
    frame = ahead.clamp(max=frames - 1)
    heard = projected[torch.arange(rows, device=device)[:, None], frame].float()
    logits = joint.float()(heard, predicted[:, None].float())
    parts = [part for part in joint.split(logits) if part.size(2)]
    for part, first in zip(parts, (0, kernel.label_tiles), strict=False):
        for place, of_tile in enumerate(part.split(kernel.tile_labels, dim=2), start=first):
            wanted = of_tile[wanted_frames]
            best, mass = scores.best[:, :, place][wanted_frames], scores.mass[:, :, place][wanted_frames]
            chosen = (scores.choice[:, :, place][wanted_frames] - kernel.tile_labels * place).long()
            assert torch.allclose(best, wanted.amax(1), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
            assert torch.allclose(best + mass.log(), wanted.logsumexp(1), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
            assert (wanted.gather(1, chosen[:, None]).squeeze(1) >= wanted.amax(1) - 2 * TOLERANCE[dtype]).all()


def test_tiles_whose_labels_are_all_masked_have_no_mass(device):
    joint = random_joint(0, labels=140, durations=TDT, width=4).to(device)
    masks = some_masks([label < 70 for label in range(140)], 2, device)
    inputs = torch.randn(2, 5, 4, device=device), torch.randn(2, 4, device=device)
    places = torch.zeros(2, dtype=torch.int64, device=device), torch.full((2,), 5, device=device)

    scores = JointKernel(joint, 2, 2, masks)(*inputs, *places)

    logits = joint(inputs[0][:, :2], inputs[1][:, None])
    logits[..., :141] += masks.of_rows[:, None]
    for place, of_tile in enumerate((logits[..., :64], logits[..., 64:128], logits[..., 128:141], logits[..., 141:])):
        assert torch.allclose(scores.best[..., place], of_tile.amax(2), atol=1e-5)
        mass = scores.mass[..., place]
        assert torch.allclose(mass.log() + scores.best[..., place], of_tile.logsumexp(2), atol=1e-5)
    assert (scores.mass[0, :, 0] == 0).all()


def test_the_lowest_of_equal_labels_is_chosen(device):
    joint = random_joint(0, labels=100, durations=TDT, width=4).to(device)
    joint.output.weight.zero_()
    joint.output.bias.zero_()

    scores = JointKernel(joint, 2, 8)(torch.ones(2, 5, 4, device=device), torch.ones(2, 4, device=device),
                                      torch.zeros(2, dtype=torch.int64, device=device),
                                      torch.full((2,), 8, device=device))  # fmt: skip

    assert scores.choice.unique(dim=1).tolist() == [[[0, 64, 128]]] * 2
    assert scores.mass.unique(dim=1).tolist() == [[[64, 37, 5]]] * 2


@pytest.mark.slow
@few_examples
@given(
    seed=st.integers(0, 1000),
    dtype=dtypes,
    rows=st.integers(1, 20),
    width=st.integers(1, 70),
    layers=st.integers(1, 3),
    joint_width=st.integers(1, 40),
    tile=st.sampled_from([UNITS_OF_FEW, UNITS_OF_MANY]),
    any_found=st.booleans(),
)
def test_labels_are_read_as_the_predictor_reads_them(
    device, seed, dtype, rows, width, layers, joint_width, tile, any_found
):
    torch.manual_seed(seed)
    predictor = Predictor(5, width, layers).requires_grad_(requires_grad=False)
    joint = Joint(6, width, joint_width, 5).requires_grad_(requires_grad=False).to(device, dtype)
    predictor.fold()
    predictor.to(device, dtype)
    hidden, cell = torch.randn(layers, rows, width).to(device, dtype), torch.randn(layers, rows, width, device=device)
    predicted = torch.randn(rows, joint_width).to(device, dtype)
    labels, found = torch.randint(0, 6, (rows,), device=device), torch.randint(0, 2, (rows,), device=device) * any_found
    output, (wanted_hidden, wanted_cell) = predictor.float()(labels, (hidden.float(), cell.float()))
    wanted = joint.float().predictor_projection(output)
    wanted = [new.where(found[:, None] > 0, old) for new, old in
              ((wanted_hidden, hidden.float()), (wanted_cell, cell.float()), (wanted, predicted.float()))]  # fmt: skip
    predictor.to(dtype)
    joint.to(dtype)

    after = torch.full_like(hidden, float("nan"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictor_kernels, "chosen_tile", lambda *_: tile)
        PredictorKernels(predictor, joint)(labels, found, hidden, after, cell, predicted)

    for got, expected in zip((after, cell, predicted), wanted, strict=True):
        assert torch.allclose(got.float(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_tiles_are_large_where_less_is_read_so_and_not_by_too_few_programs(device):
    few, many = Tile(16, 64), Tile(128, 128)

    for pairs, labels, tile in (
        (32 * 8, 1025, few),
        (64 * 8, 1025, many),
        (128 * 8, 1025, many),
        (256 * 4, 1025, many),
        (8 * 8, 8193, many),
        (1 * 8, 8193, few),
    ):
        assert chosen_tile(few, many, pairs, labels, torch.bfloat16) == tile
        assert chosen_tile(few, many, pairs, labels, torch.float32) == few


def small_transducer(seed, durations, layers, blank_bias, device):
    torch.manual_seed(seed)
    predictor = Predictor(4, 5, layers).requires_grad_(requires_grad=False)
    joint = random_joint(seed, 4, durations, 7)
    for weight in (predictor.lstm.weight_ih_l0, joint.predictor_projection.weight, joint.output.weight):
        weight.mul_(4)
    joint.output.bias[joint.blank] += blank_bias
    predictor.fold()
    return predictor.to(device), joint.to(device)


def some_masks(masked, rows, device):
    """Every second row may write all labels; the others may not write some."""
    table = torch.zeros(2, len(masked) + 1)
    table[1, : len(masked)][torch.tensor(masked)] = -torch.inf
    return LabelMasks(table.to(device), (torch.arange(rows, device=device) + 1) % 2)


def assert_same(found, wanted):
    for one, other in zip(found.rows(), wanted.rows(), strict=True):
        assert (one.tokens, one.frames, one.ends, one.durations) == (
            other.tokens,
            other.frames,
            other.ends,
            other.durations,
        )
        assert one.confidence == pytest.approx(other.confidence, abs=1e-4)


@pytest.mark.slow
@few_examples
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 3),
    frames=st.integers(1, 7),
    window=st.sampled_from([1, 2, 4]),
    durations=st.sampled_from([(), TDT, (1, 2), (0, 9)]),
    layers=st.integers(1, 2),
    max_symbols=st.integers(1, 3),
    blank_bias=st.sampled_from([0.0, 1.0]),
    masked=st.one_of(st.none(), st.lists(st.booleans(), min_size=4, max_size=4)),
)
def test_steps_find_what_plain_operations_find(
    device, seed, rows, frames, window, durations, layers, max_symbols, blank_bias, masked
):
    predictor, joint = small_transducer(seed, durations, layers, blank_bias, device)
    encoded = 3 * torch.randn(rows, frames, 6).to(device)
    lengths = torch.randint(0, frames + 1, (rows,)).to(device)

    masks = None if masked is None else some_masks(masked, rows, device)

    form = FusedLookAhead(joint.encoder_projection(encoded), predictor, joint, window, masks)
    state = TransducerState(lengths, frames, predictor, joint, max_symbols)
    repeat(form.two_steps, state)

    wanted = look_ahead(encoded, lengths, predictor, joint, max_symbols, masks)
    assert_same(state.result(columns=state.capacity), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("durations", [(), TDT], ids=["rnnt", "tdt"])
def test_replays_find_what_plain_operations_find(device, durations, monkeypatch):
    monkeypatch.setattr("models.search.drivers.graph.STEPS_A_REPLAY", 2)  # interpreted, each takes seconds
    predictor, joint = small_transducer(3, durations, layers=1, blank_bias=0.5, device=device)
    driver = GraphedLookAhead(predictor, joint, max_symbols=2, fused=True)

    for rows, frames in ((4, 6), (2, 4), (1, 6)):
        encoded = 3 * torch.randn(rows, frames, 6).to(device)
        lengths = torch.arange(frames, frames - rows, -1).to(device)
        wanted = look_ahead(encoded, lengths, predictor, joint, max_symbols=2)
        assert sum(len(row.tokens) for row in wanted.rows()) > 0
        assert_same(driver.search(encoded, lengths), wanted)
        masks = some_masks([False, True, True, False], rows, device)
        masked = look_ahead(encoded, lengths, predictor, joint, 2, masks)
        assert_same(driver.search(encoded, lengths, masks), masked)
        assert_same(driver.search(encoded, lengths), wanted)
    assert driver.fused
    assert len(driver.sizes) == 4


def test_more_durations_than_a_tile_holds_are_left_to_plain_operations(device, monkeypatch, caplog):
    monkeypatch.setattr("models.search.drivers.graph.STEPS_A_REPLAY", 2)
    predictor, joint = small_transducer(3, tuple(range(65)), layers=1, blank_bias=0.0, device=device)
    joint.output.bias[-1] += 100
    encoded, lengths = torch.randn(1, 66, 6, device=device), torch.tensor([66], device=device)

    found = GraphedLookAhead(predictor, joint, max_symbols=2, fused=True).search(encoded, lengths)

    assert_same(found, look_ahead(encoded, lengths, predictor, joint, max_symbols=2))
    assert "65 durations" in caplog.text


def test_a_capture_that_was_spoiled_is_not_taken_for_kernels_that_do_not_run(device, monkeypatch, caplog):
    spoiled = [RuntimeError("CUDA error: operation failed due to a previous error during capture")]

    def driver_of(*arguments, **options):
        if spoiled:
            raise spoiled.pop()
        return GraphDriver(*arguments, **options)

    monkeypatch.setattr("models.search.graphed_look_ahead.GraphDriver", driver_of)
    monkeypatch.setattr("models.search.drivers.graph.STEPS_A_REPLAY", 2)
    predictor, joint = small_transducer(3, TDT, layers=1, blank_bias=0.5, device=device)
    driver = GraphedLookAhead(predictor, joint, max_symbols=2, fused=True)

    driver.search(3 * torch.randn(1, 4, 6).to(device), torch.tensor([4]).to(device))

    assert not spoiled
    assert isinstance(driver.sizes.known((1, 64))._form, FusedLookAhead)
    assert not caplog.records


def driver_without_kernels(device, monkeypatch, error):
    """A search whose kernels raise an error, with its predictor and joint, and a batch."""

    def refuse(*_):
        raise error

    monkeypatch.setattr("models.search.fused_look_ahead.JointKernel", refuse)
    predictor, joint = Predictor(4, 5, 1).to(device), random_joint(1, 4, TDT, 7).to(device)
    predictor.fold()
    driver = GraphedLookAhead(predictor, joint, max_symbols=3, fused=True)
    return driver, (predictor, joint), (torch.randn(3, 9, 6, device=device), torch.tensor([9, 0, 4], device=device))


def test_without_kernels_plain_operations_do_the_steps(device, monkeypatch, caplog):
    error = ValueError("this GPU has no such instruction")
    driver, parts, batch = driver_without_kernels(device, monkeypatch, error)

    for _ in range(2):
        assert_same(driver.search(*batch), look_ahead(*batch, *parts, 3))
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["fast path search failed"]


def test_memory_that_runs_out_is_no_fault_of_the_kernels(device, monkeypatch, caplog):
    error = RuntimeError("Triton Error [CUDA]: out of memory")
    driver, _, batch = driver_without_kernels(device, monkeypatch, error)

    with pytest.raises(RuntimeError, match="out of memory"):
        driver.search(*batch)
    assert not caplog.records


class Forgetful(FusedLookAhead):
    """Kernels that find nothing."""

    def two_steps(self, state):
        state.active.zero_()


def driver_steps_once(monkeypatch):
    monkeypatch.setattr(GraphDriver, "until_done", lambda self, most: self._replay() or most)
    monkeypatch.setattr("models.search.drivers.graph.STEPS_A_REPLAY", 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "states"),
    [
        (lambda _: None, {"search": "used"}),
        (
            lambda patch: patch.setattr("models.search.fused_look_ahead.FusedLookAhead", Forgetful),
            {"search": "disagreed", "search_graphs": "used"},
        ),
        (driver_steps_once, {"search": "disagreed", "search_graphs": "disagreed"}),
    ],
)
def test_a_search_that_finds_other_tokens_gives_way_to_a_weaker_form(device, spoil, states, monkeypatch, fast_paths):
    monkeypatch.setattr(FastPaths, "suits", lambda *_: True)
    monkeypatch.setattr("models.search.graphed_look_ahead.COMPARED_FRAMES", 12)
    spoil(monkeypatch)
    predictor, joint = small_transducer(3, TDT, layers=1, blank_bias=0.5, device=device)
    driver = GraphedLookAhead(predictor, joint, max_symbols=2, fused=True, loops=False)
    encoded, lengths = 3 * torch.randn(3, 9, 6, device=device), torch.tensor([9, 0, 4], device=device)

    for _ in range(2):
        assert_same(driver.search(encoded, lengths), look_ahead(encoded, lengths, predictor, joint, max_symbols=2))
    assert fast_paths.states() == states
