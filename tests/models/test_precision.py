"""Which dtype is taken where nobody says one."""

import pytest
import torch

from models import default_dtype
from models.precision import has_fast_bfloat16

FACTS = {"amd": "processor\t: 0\nvendor_id\t: AuthenticAMD\n", "intel": "processor\t: 0\nvendor_id\t: GenuineIntel\n"}


@pytest.mark.parametrize(
    ("vendor", "matrix_unit", "instructions", "fast"),
    [
        ("intel", True, True, True),
        ("intel", False, True, False),
        ("amd", False, True, True),
        ("amd", False, False, False),
        (None, True, True, True),
        (None, False, True, False),
    ],
)
def test_a_cpu_takes_bfloat16_where_its_products_are_fast(
    vendor, matrix_unit, instructions, fast, tmp_path, monkeypatch
):
    facts = tmp_path / "cpuinfo"
    if vendor:
        facts.write_text(FACTS[vendor])
    monkeypatch.setattr("models.precision._CPU_FACTS", facts)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: matrix_unit)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: instructions)

    assert has_fast_bfloat16() == fast
    assert default_dtype(torch.device("cpu")) == (torch.bfloat16 if fast else torch.float32)


@pytest.mark.parametrize(("capability", "fast"), [((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_a_gpu_takes_bfloat16_where_it_has_units_for_it(capability, fast, monkeypatch):
    asked = torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability if device == asked else (0, 0))

    assert default_dtype(asked) == (torch.bfloat16 if fast else torch.float32)
