"""Kernels read and multiply no more than rows need, counted in Triton's interpreter."""

import os

import pytest
import torch

from models.heads.transducer import Joint, Predictor
from models.kernels.attention import Launch, relative_attention
from models.search import fused_joint as joint_kernels
from models.search.fused_joint import SCORES_OF_FEW, SCORES_OF_MANY, JointKernel
from models.search.fused_predictor import PredictorKernels
from tests.triton_interpreter import counted

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="a GPU runs kernels uncounted")


@pytest.mark.parametrize(
    ("active", "tiles"), [(range(6), 3), ([0, 1], 1), ([1, 2], 2), ([], 0)], ids=["all", "one", "two", "none"]
)
def test_weights_of_scores_are_read_for_tiles_with_an_active_row_alone(active, tiles):
    joint = Joint(6, 5, 20, 70, (0, 1)).requires_grad_(requires_grad=False)
    kernel = JointKernel(joint, rows=6, window=8)  # a tile has two rows
    lengths = torch.tensor([9 if row in active else 0 for row in range(6)])

    with counted(joint.output.weight) as counts:
        kernel(torch.randn(6, 9, 20), torch.randn(6, 20), torch.zeros(6, dtype=torch.int64), lengths)

    assert counts.read == tiles * joint.output.weight.numel()


@pytest.mark.parametrize(("found", "tiles"), [(range(40), 3), ([17, 30], 1), ([], 0)], ids=["all", "one", "none"])
def test_weights_of_the_predictor_are_read_for_tiles_with_a_new_label_alone(found, tiles):
    predictor, joint = Predictor(4, 16, 2), Joint(6, 16, 7, 4)
    for module in (predictor, joint):
        module.requires_grad_(requires_grad=False)
    (*_, first, _, _), (*_, second, _, _) = predictor.lstm.all_weights
    predictor.fold()
    weights = first, second, joint.predictor_projection.weight
    state = [torch.zeros(2, 40, 16) for _ in range(3)]
    is_found = torch.tensor([int(row in found) for row in range(40)])

    with counted(*weights) as counts:
        PredictorKernels(predictor, joint)(torch.zeros_like(is_found), is_found, *state, torch.zeros(40, 7))

    assert counts.read == tiles * sum(map(torch.numel, weights))


def test_large_tiles_read_weights_an_eighth_as_often(monkeypatch):
    joint = Joint(6, 5, 20, 70).requires_grad_(requires_grad=False)
    inputs = torch.randn(32, 4, 20), torch.randn(32, 20), torch.zeros(32, dtype=torch.int64), torch.full((32,), 4)

    def read(tile):
        monkeypatch.setattr(joint_kernels, "chosen_tile", lambda *_: tile)
        with counted(joint.output.weight) as counts:
            JointKernel(joint, rows=32, window=4)(*inputs)
        return counts.read

    assert read(SCORES_OF_FEW) == 8 * read(SCORES_OF_MANY)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "window"), [(128, 8), (256, 4)])
def test_a_step_of_the_usual_batch_reads_the_weights_eight_times(rows, window):
    """With small tiles it was 64 times: 26 us of an H100's L2 cache instead of 8."""
    joint = Joint(6, 5, 8, 1024, tuple(range(5))).bfloat16().requires_grad_(requires_grad=False)
    inputs = torch.zeros(rows, 9, 8, dtype=torch.bfloat16), torch.zeros(rows, 8, dtype=torch.bfloat16)
    kernel = JointKernel(joint, rows, window)

    with counted(joint.output.weight) as counts:
        kernel(*inputs, torch.zeros(rows, dtype=torch.int64), torch.full((rows,), 9))

    assert counts.read == 8 * joint.output.weight.numel()


def test_a_row_visits_the_keys_of_its_own_frames_and_each_tile_has_one_new_block_of_distances():
    merged, table, bias = torch.randn(1, 103, 3 * 16), torch.randn(1, 199, 16), torch.zeros(1, 16)
    starts = torch.tensor([0, 100, 103])
    lengths = starts.diff()

    with counted() as counts:
        relative_attention(merged, table, bias, bias, starts, lengths, 100, None, Launch(64, 32))

    # For each tile of keys: the product with keys, that with distances, that with values; two of distances before.
    of_long, of_short = 2 * (2 + 3 * 4), 2 + 3 * 1
    assert counts.products == of_long + of_short
