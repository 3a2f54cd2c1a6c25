"""What this CPU can compute is detected, and there is another way where it cannot."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from models.device.cpu import can_pack, has_lstm, multiplies_eight_bits_exactly, pack, packed_product, processor
from models.heads.transducer import Predictor

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_packing_works_where_it_is_said_to(dtype):
    weight = torch.randn(48, 32).to(dtype)
    inputs = torch.randn(5, 32).to(dtype)

    if not can_pack(dtype):
        with pytest.raises((AttributeError, RuntimeError)):
            packed_product(inputs, pack(weight), None)
        return
    torch.testing.assert_close(packed_product(inputs, pack(weight), None), inputs @ weight.T, rtol=1e-2, atol=5e-2)


def test_a_build_without_the_operations_has_none(monkeypatch):
    class Nothing:
        """A namespace of torch's operations in which there are none."""

    for function, namespace in ((can_pack, "mkldnn"), (multiplies_eight_bits_exactly, "onednn")):
        arguments = (torch.float32,) if function is can_pack else ()
        monkeypatch.setattr(torch.ops, namespace, Nothing())
        assert not function.__wrapped__(*arguments)


def test_products_in_8_bits_that_are_cut_off_are_not_exact(monkeypatch):
    def saturated(inputs, *arguments):
        return torch.full((16, 64), 32767.0 * 32)

    monkeypatch.setattr(torch.ops.onednn.qlinear_pointwise, "default", saturated)

    assert not multiplies_eight_bits_exactly.__wrapped__()


def test_8_bit_products_work_where_they_are_said_to():
    inputs, weight = torch.full((7, 96), 255, dtype=torch.uint8), torch.full((80, 96), 127, dtype=torch.int8)
    weight[:, ::3] = -127
    scales, zeros = torch.ones(80), torch.zeros(80, dtype=torch.int32)

    sums = torch.ops.onednn.qlinear_pointwise.default(
        *(inputs, 1.0, 0, torch.ops.onednn.qlinear_prepack(weight, None), scales, zeros),
        *(None, 1.0, 0, torch.float32, "none", [], ""),
    )

    is_exact = torch.equal(sums, inputs.float() @ weight.float().T)
    assert is_exact == multiplies_eight_bits_exactly()


@pytest.mark.parametrize("exists", [True, False])
def test_a_predictor_is_trained_where_there_is_no_lstm_of_the_dtype(exists, monkeypatch):
    if not (exists and not has_lstm(torch.bfloat16)):
        monkeypatch.setattr("models.heads.transducer.has_lstm", lambda _: exists)
    torch.manual_seed(0)
    predictor = Predictor(10, 16, 1)
    labels = torch.tensor([[1, 2, 3]])

    with torch.autocast("cpu", dtype=torch.bfloat16):
        said = predictor.read(labels)
    said.float().sum().backward()

    torch.testing.assert_close(said.float(), predictor.read(labels), rtol=2e-2, atol=2e-2)
    assert predictor.lstm.weight_hh_l0.grad.isfinite().all()


SHAPES = """
import ctypes
import torch
from models.device.cpu import can_pack, pack, packed_product

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena free fast mapped bytes most small used unused top".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Heap
weight, before = pack(torch.randn(256, 256)), 0
for rows in range(1, 301):
    packed_product(torch.randn(rows, 256), weight, None)
    if rows == 100:
        before = libc.mallinfo2().used
print(libc.mallinfo2().used - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not can_pack(torch.float32), reason="this build packs nothing")
@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_what_was_prepared_for_old_shapes_is_forgotten():
    def grown(**environment: str) -> int:
        command = [sys.executable, "-c", SHAPES]
        return int(subprocess.run(command, capture_output=True, check=True, env=os.environ | environment).stdout)

    kept = grown(LRU_CACHE_CAPACITY="1024", ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")

    assert grown() < 0.2 * kept


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="others have no name there")
def test_a_processor_has_a_name_of_its_own():
    assert processor() not in ("", platform.machine())
