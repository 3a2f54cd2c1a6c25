"""On a GPU, or over the CUDA that computes nothing, the host launches a step without waiting for any part of it."""

from dataclasses import replace

import pytest
import torch

from tests.models.no_waiting import no_waiting
from tests.training.small_run import TDT, manifest, recipe_file
from training.loader import load
from training.objective import label_counts
from training.recipe_file import read_recipe
from training.run import Run
from training.sampler import Position
from training.step import batch_losses

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda")
STUDENT = {"layers": 2, "width": 16, "heads": 2, "subsampling_channels": 8, "transducer": TDT}


def test_the_host_waits_for_nothing_in_a_part_of_a_step(tmp_path):
    manifest(tmp_path)
    augmentation = {"spec_augment": {}}
    run = Run(read_recipe(recipe_file(tmp_path, student=STUDENT, augmentation=augmentation)), tmp_path, DEVICE)
    # PyTorch's CTC waits for the device when it copies the lengths there.
    run.recipe = replace(run.recipe, objective=replace(run.recipe.objective, ctc=0.0))
    batches = load(run.sampler, run.examples, Position(), pins=True)
    batch = next(batches)
    batches.close()
    counts = label_counts(batch, run.recipe.objective)
    assert batch.waveforms.is_pinned()

    def learn():
        batch_losses(run, batch.to(DEVICE), counts).total.backward()

    learn()  # kernels are compiled
    with no_waiting():
        learn()
        run.average.update(run.network, 0)
