"""Layers that compute their activations again change nothing but the memory."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from tests.training.small_run import CHECKPOINT, TDT, assert_resumes, first_batch, manifest, new_run, recipe_file
from tests.training.test_attention_objective import new_canary
from tests.training.test_loop import with_transducer
from training.errors import RecipeError
from training.recipe_file import read_recipe
from training.step import batch_losses, take_step


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["ctc", "transducer", "canary"])
def test_losses_weights_and_statistics_are_equal_to_the_last_bit(tmp_path, kind, precision):
    found = []
    for recompute in (False, True):
        options = {"recompute": recompute, "dropout": 0.1, "precision": precision, "batch_norm": "batch"}
        if kind == "transducer":
            options["student"] = with_transducer(TDT)
        run = (new_canary if kind == "canary" else new_run)(tmp_path, **options)
        batch = first_batch(run)
        losses = [take_step(run, batch).loss for _ in range(3)]
        found.append((losses, run.network.state_dict()))

    (before, weights), (losses, recomputed) = found
    assert losses == before
    assert all(torch.equal(recomputed[name], value) for name, value in weights.items())


@pytest.mark.parametrize("kind", ["ctc", "canary"])
def test_what_is_kept_for_gradients_is_far_less(tmp_path, kind):
    kept = []
    for recompute in (False, True):
        student = {"layers": 6, "width": 32, "heads": 2, "subsampling_channels": 2}
        if kind == "canary":
            student["attention"] = {"width": 32, "layers": 6, "heads": 2, "positions": 64}
        run = (new_canary if kind == "canary" else new_run)(tmp_path, recompute=recompute, student=student)
        sizes = []

        def note(tensor, sizes=sizes):
            sizes.append(tensor.numel() * tensor.element_size())
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            batch_losses(run, first_batch(run))
        kept.append(sum(sizes))

    assert kept[1] < kept[0] / 2


def test_a_run_resumes_as_if_it_had_not_stopped(tmp_path):
    assert_resumes(lambda: new_run(tmp_path, recompute=True, dropout=0.1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_norm": "ranks"}, "recompute and batch_norm: ranks exclude each other"),
        (
            {"teacher": {"checkpoint": str(CHECKPOINT), "apart": {"steps": 1, "peak": 0.1}}, "vocabulary": None},
            "recompute and teacher exclude each other",
        ),
    ],
)
def test_where_it_cannot_be_it_is_refused(tmp_path, changes, message):
    manifest(tmp_path)

    with pytest.raises(RecipeError, match=message):
        read_recipe(recipe_file(tmp_path, recompute=True, **changes))


def test_a_convolutional_model_has_no_such_layers(tmp_path):
    blocks = [{"filters": 8, "kernel_size": 3, "stride": 2, "residual": False}]
    with pytest.raises(RecipeError, match="recompute is for the layers of a Conformer or an attention decoder"):
        new_run(tmp_path, recompute=True, student=None, convolutional={"blocks": blocks})
