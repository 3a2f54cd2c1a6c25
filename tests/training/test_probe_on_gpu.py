"""On a GPU, or over the CUDA that computes nothing, the largest batch is what the allocator has room for."""

from functools import partial

import pytest
import torch

from models.device.memory import leave_room
from tests.training.small_run import manifest, recipe_file
from training.probe import measured, probe
from training.recipe_file import read_recipe
from training.run import Run

STUDENT = {"layers": 1, "width": 32, "heads": 2, "subsampling_channels": 32}


@pytest.mark.gpu
def test_what_fits_stays_within_the_memory_and_a_twentieth_more_does_not(tmp_path):
    manifest(tmp_path, copies=2000)
    device = torch.device("cuda")
    run = Run(read_recipe(recipe_file(tmp_path, student=STUDENT)), tmp_path, device)
    room = 2**30
    leave_room(device, room / torch.cuda.get_device_properties(device).total_memory)

    found = probe(run.sampler.buckets, partial(measured, run), by_memory=True)

    for one in found:
        # A batch at most 8 % larger did not fit: some block found no place. The largest, the first output of the
        # subsampling, takes 0.23 of the memory here, so tensors take about 0.77 of it, less those 8 %.
        assert 0.69 * room < one.step.bytes <= room
        assert one.rows == one.clips or not measured(run, one.bucket, round(1.08 * one.rows) + 1).fits
        assert measured(run, one.bucket, one.rows).fits  # after one that did not fit, too
