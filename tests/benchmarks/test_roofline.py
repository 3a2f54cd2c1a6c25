"""The operations of the calculation are those that torch counts; more work never takes less time."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.random_model import ENCODERS
from benchmarks.roofline import GPUS, Stage, encoder_stages
from models.encoders.conformer import ConformerEncoder


def test_an_encoders_products_are_those_that_torch_counts():
    config, seconds, batch = dataclasses.replace(ENCODERS["110m"], layers=2), 8.0, 3
    stages = {stage.name: stage for stage in encoder_stages(config, batch, seconds)}
    with torch.device("meta"), FlopCounterMode(display=False) as counted, torch.no_grad():
        encoder = ConformerEncoder(config).eval()
        encoder(torch.empty(batch, config.mels, int(100 * seconds)), torch.full((batch,), int(100 * seconds)))
    # Here the products by distance are twice as wide, and convolutions by channel are counted in the encoder's layers.
    frames = batch * seconds * 100 / 8
    by_distance = config.layers * 2 * frames * seconds * 100 / 8 * config.width
    convolved = config.layers * 2 * frames * config.width * config.kernel_size
    positions = config.layers * 2 * (2 * seconds * 100 / 8) * config.width**2

    known = sum(stage.operations for name, stage in stages.items() if name != "features")

    assert known + by_distance + convolved + positions == pytest.approx(counted.get_total_flops(), rel=0.02)


@given(batch=st.integers(1, 500), seconds=st.floats(0.5, 60), gpu=st.sampled_from(sorted(GPUS)))
def test_more_audio_never_takes_less(batch, seconds, gpu):
    def total(batch, seconds):
        return sum(stage.seconds(GPUS[gpu]) for stage in encoder_stages(ENCODERS["0.6b"], batch, seconds))

    assert total(batch, seconds) <= total(batch + 1, seconds)
    assert total(batch, seconds) <= total(batch, 1.1 * seconds)


def test_the_slowest_of_the_three_counts():
    gpu = GPUS["a100"]

    assert Stage("", gpu.operations["float16"], 0, 0).seconds(gpu, operations=0.5) == 2
    assert Stage("", 1, 3 * gpu.bytes, 0).seconds(gpu) == 3
    assert Stage("", 1, 1, 4).seconds(gpu) == pytest.approx(1e-5)


def test_values_of_four_bytes_and_exact_stages_take_longer():
    gpu = GPUS["a100"]
    products, bytes_alone = Stage("", gpu.operations["float32"], 0, 0), Stage("", 0, gpu.bytes, 0)
    features = Stage("features", gpu.operations["float32"], 0, 0, is_exact=True)

    for dtype, seconds in (("bfloat16", 0.0625), ("float16", 0.0625), ("tf32", 0.125), ("float32", 1.0)):
        assert products.seconds(gpu, dtype=dtype) == pytest.approx(seconds)
        assert features.seconds(gpu, dtype=dtype) == pytest.approx(1.0)
    assert [bytes_alone.seconds(gpu, dtype=dtype) for dtype in ("float16", "tf32")] == [1.0, 2.0]
    assert Stage("attention", gpu.operations["float32"], 0, 0).seconds(gpu, dtype="tf32") == pytest.approx(1.0)


@pytest.mark.slow
def test_every_decoder_has_a_table():
    command = [sys.executable, "-m", "benchmarks", "roofline", "--device", "t4"]
    command += ["--decoder", "ctc", "rnnt", "tdt", "attention", "--shape", "110m"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.count("RTFx  ") == 4


@pytest.mark.slow
def test_a_dtype_without_units_is_refused():
    command = [sys.executable, "-m", "benchmarks", "roofline", "--device", "t4", "--dtype", "tf32"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "t4 has no units for tf32" in done.stderr
