"""Processes that train together take the same steps as one that trains alone."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT
from tests.training.small_run import CPU, RNNT, TDT, TEXTS, finish, log, manifest, recipe_file
from training.recipe_file import read_recipe
from training.run import Run
from training.vocabulary import new_vocabulary

STUDENT = {"layers": 1, "width": 16, "heads": 2, "subsampling_channels": 4}
HEADS = {
    "ctc": {},
    "tdt": {"student": STUDENT | {"transducer": TDT}},
    "rnnt": {"student": STUDENT | {"transducer": RNNT}},
    "aed": {
        "student": STUDENT | {"attention": {"width": 16, "layers": 1, "heads": 2, "positions": 64}},
        "vocabulary": None,
        "languages": [{"code": "en", "vocabulary": "en.model"}],
    },
}


def prepared(folder, **changes):
    """A recipe of few steps without randomness: no dropout, no augmentation, frozen statistics."""
    manifest(folder, copies=2)
    (folder / "en.model").write_bytes(new_vocabulary(list(TEXTS.values()), 24))
    options = {"steps": 4, "student": STUDENT, "dropout": 0.0, "augmentation": {}, "batch_norm": "running"}
    return recipe_file(folder, **options | changes)


def alone(folder, out, **changes):
    (folder / out).mkdir()
    run = Run(read_recipe(prepared(folder, **changes)), folder / out, CPU)
    finish(run)
    return steps(folder / out), run.average.state


def steps(folder):
    return [line for line in log(folder) if "loss" in line]


def together(folder, out, ranks, *more, program=("-m", "cli")):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    # Which module torchrun starts, it takes without a dash.
    command = [*torchrun, *program, "train", "run", "recipe.yaml", "--out", out, "--device", "cpu", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("head", HEADS)
def test_parts_of_a_step_are_one_batch_of_twice_the_size(tmp_path, head):
    # All clips in one batch, or in two of half as many.
    one, averaged = alone(tmp_path, "one", **HEADS[head], batches={"seconds": 60, "buckets": 1})
    two, same = alone(tmp_path, "two", **HEADS[head], batches={"seconds": 30, "buckets": 1, "parts": 2})

    assert [step["loss"] for step in two] == pytest.approx([step["loss"] for step in one], rel=1e-5)
    norms = [[step["gradient_norm"] for step in each] for each in (one, two)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    heard = [[step["audio_seconds"] for step in each] for each in (one, two)]
    assert heard[1] == pytest.approx(heard[0], abs=0.01)
    for name, value in averaged.items():
        torch.testing.assert_close(same[name], value, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["ctc", *(pytest.param(name, marks=pytest.mark.long) for name in ("tdt", "aed"))])
def test_two_ranks_have_the_losses_of_one_with_the_same_parts(tmp_path, head):
    batches = {"seconds": 8, "buckets": 2, "parts": 2}
    one, _ = alone(tmp_path, "one", **HEADS[head], batches=batches)

    ran = together(tmp_path, "two", 2)

    assert ran.returncode == 0, ran.stderr
    two = steps(tmp_path / "two")
    assert [step["loss"] for step in two] == pytest.approx([step["loss"] for step in one], rel=1e-5)
    heard = [[step["audio_seconds"] for step in each] for each in (one, two)]
    assert heard[1] == pytest.approx(heard[0], abs=0.01)
    padding = [[step["padding_share"] for step in each] for each in (one, two)]
    assert padding[1] == pytest.approx(padding[0], abs=1e-3)
    assert ran.stdout.count("step 4/4") == 1  # one of them reports


DIES = """
import os, signal, sys, cli
import training.loop as loop
taken = loop.take_step
def step(run, *parts, **options):
    if run.step == 2 and run.ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return taken(run, *parts, **options)
loop.take_step = step
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_run_that_loses_a_rank_ends_with_one_line_and_goes_on_alone(tmp_path):
    changes = {"save_every": 1, "batches": {"seconds": 8, "buckets": 2, "parts": 2}}
    one, _ = alone(tmp_path, "one", **changes)
    (tmp_path / "dies.py").write_text(DIES)

    killed = together(tmp_path, "two", 2, program=("dies.py",))
    resumed = Run(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "two", CPU)
    resumed.resume()
    finish(resumed)

    assert killed.returncode != 0
    assert signal.SIGKILL.name in killed.stderr or "-9" in killed.stderr
    assert killed.stderr.count("steno: another process of this run is gone; --resume goes on") == 1
    losses = [[step["loss"] for step in each] for each in (one, steps(tmp_path / "two"))]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


STATISTICS = """
import os, sys, torch, torch.distributed as dist
from models.encoders.batch_norm import FrameBatchNorm
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
torch.manual_seed(0)
frames, valid = torch.randn(4, 3, 7, requires_grad=True), torch.rand(4, 7) < 0.7
whole, part = FrameBatchNorm(3), FrameBatchNorm(3)
part.over_ranks = True
weights = torch.randn(4, 3, 7)
expected = whole(frames, valid)
(expected * weights).sum().backward()
own = slice(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
leaf = frames.detach()[own].clone().requires_grad_()
found = part(leaf, valid[own])
(found * weights[own]).sum().backward()
torch.testing.assert_close(found, expected[own].detach())
torch.testing.assert_close(leaf.grad, frames.grad[own], atol=1e-5, rtol=1e-4)
torch.testing.assert_close(part.running_var, whole.running_var)
# Silence of the second process is not in the statistics of the first.
alone, silenced = FrameBatchNorm(3), FrameBatchNorm(3)
silenced.over_ranks, silenced.is_silence = True, dist.get_rank() == 1
expected = alone(frames[:2], valid[:2])
found = silenced(frames[own], valid[own])
assert dist.get_rank() == 1 or torch.allclose(found, expected)
torch.testing.assert_close(silenced.state_dict(), alone.state_dict())
dist.barrier()
os._exit(0)  # threads of Gloo may abort a process that ends by itself
"""


@pytest.mark.slow
def test_batch_norm_over_ranks_is_that_of_one_batch(tmp_path):
    # Without torchrun, which would be a third process that imports PyTorch.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    commands = [[sys.executable, "-c", STATISTICS, str(tmp_path / "store"), str(rank)] for rank in range(2)]
    ranks = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]

    errors = [rank.communicate()[1] for rank in ranks]

    assert [rank.returncode for rank in ranks] == [0, 0], errors


@pytest.mark.slow
def test_every_precision_reaches_the_loss_of_float32(tmp_path):
    # All short clips in one batch.
    short = {"manifests": ["manifest.jsonl"], "max_seconds": 3.0}
    changes = {"steps": 30, "data": short, "batches": {"seconds": 60, "buckets": 1}}
    found = {
        name: alone(tmp_path, name, precision=name, **changes)[0] for name in ("float32", "float16", "bfloat16", "tf32")
    }

    lowest = found["float32"][-1]["loss"]
    assert lowest < 0.95 * found["float32"][0]["loss"]
    for name, taken in found.items():
        # float16 has lost the steps in which it overflowed.
        assert taken[-1]["loss"] == pytest.approx(lowest, rel=0.1), name
        assert ("loss_scale" in taken[0]) == (name == "float16")


def test_a_scaled_loss_that_overflows_is_scaled_less_and_changes_nothing(tmp_path):
    run = Run(read_recipe(prepared(tmp_path, precision="float16")), tmp_path, CPU)
    run.loss_scale.load_state_dict(run.loss_scale.state_dict() | {"scale": 2.0**24})
    before = {name: value.clone() for name, value in run.network.state_dict().items()}
    run.network.ctc.projection.register_full_backward_hook(lambda module, inputs, _: (inputs[0] * torch.inf,))

    finish(run)

    assert [(step["gradient_norm"], step["loss_scale"]) for step in steps(tmp_path)] == [
        (None, 2.0**scale) for scale in (23, 22, 21, 20)
    ]
    assert all(torch.equal(value, before[name]) for name, value in run.network.state_dict().items())
