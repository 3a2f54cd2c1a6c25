"""The default dtype, and the warning about a slow one."""

import pytest
import torch

from models import default_dtype, load_model
from models.precision import keep_products_exact
from tests.models import golden_data as golden

MODEL = golden.GOLDEN / "fastconformer-ctc-bpe" / "model.nemo"


@pytest.mark.parametrize(
    ("gain", "dtype"), [(10.0, torch.bfloat16), (2.0, torch.bfloat16), (1.0, torch.float32), (0.1, torch.float32)]
)
def test_a_cpu_takes_bfloat16_where_its_products_are_fast(gain, dtype, monkeypatch):
    monkeypatch.setattr("models.precision.gain_of_bfloat16", lambda: gain)

    assert default_dtype(torch.device("cpu")) == dtype


@pytest.mark.parametrize(("capability", "fast"), [((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_a_gpu_takes_bfloat16_where_it_has_units_for_it(capability, fast, monkeypatch):
    asked = torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability if device == asked else (0, 0))

    assert default_dtype(asked) == (torch.bfloat16 if fast else torch.float32)


@pytest.mark.parametrize(
    ("gain", "dtype", "warnings"),
    [
        (0.1, torch.bfloat16, ["This CPU takes 10.0 times as long in bfloat16 as in float32."]),
        (0.1, torch.float32, []),
        (1.0, torch.bfloat16, []),
    ],
)
def test_a_dtype_that_is_slow_here_runs_with_one_warning(gain, dtype, warnings, monkeypatch, caplog):
    monkeypatch.setattr("models.precision.gain_of_bfloat16", lambda: gain)

    model = load_model(MODEL, dtype=dtype)

    assert model.transcribe([golden.clip(golden.CLIPS[0])])[0].tokens
    assert [record.getMessage() for record in caplog.records] == warnings


def flags():
    matmul = torch.backends.cuda.matmul
    return [matmul.allow_tf32, torch.backends.cudnn.allow_tf32, matmul.allow_bf16_reduced_precision_reduction]


@pytest.fixture
def all_allowed():
    before = flags()
    set_flags([True] * 3)
    yield
    set_flags(before)


def set_flags(allowed):
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32, torch.backends.cudnn.allow_tf32, matmul.allow_bf16_reduced_precision_reduction = allowed


def test_on_a_gpu_products_round_only_what_was_asked_for(all_allowed):
    keep_products_exact(torch.device("cpu"))
    assert flags() == [True] * 3

    keep_products_exact(torch.device("cuda:1"))
    assert flags() == [False] * 3


def test_a_model_sets_the_rounding_of_products_when_it_is_loaded(monkeypatch):
    asked = []
    monkeypatch.setattr("models.model.keep_products_exact", asked.append)

    load_model(MODEL)

    assert asked == [torch.device("cpu")]
