"""Products in 8 bits are close to ordinary ones, and those of a frame do not depend on other frames."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models import load_model
from models.device.cpu import multiplies_eight_bits_exactly
from models.device.quantized_linear import QuantizedLinear, is_worth_quantizing
from models.network import _replace_products
from tests.models import golden_data as golden

in_eight_bits = pytest.mark.skipif(
    not multiplies_eight_bits_exactly(), reason="this processor has no products in 8 bits (VNNI)"
)
MODEL = golden.GOLDEN / "hybrid-tdt-ctc-bpe" / "model.nemo"


def by_hand(linear, inputs):
    """The product of what was rounded, in float64."""
    scales = linear.weight.abs().amax(dim=1) / 127
    weight = (linear.weight / scales[:, None]).round().double() * scales[:, None].double()
    levels = inputs.abs().amax(dim=-1, keepdim=True) / 127
    rounded = (inputs * (1 / levels)).round().double() * levels.double() if inputs.numel() else inputs.double()
    product = rounded.nan_to_num() @ weight.T
    return product if linear.bias is None else product + linear.bias.double()


@in_eight_bits
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 3),
    frames=st.integers(1, 40),
    widths=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    bias=st.booleans(),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    at_once=st.sampled_from([16, 512]),
)
@torch.no_grad()
def test_they_are_the_products_of_what_was_rounded(rows, frames, widths, bias, scale, at_once):
    torch.manual_seed(0)
    linear, inputs = nn.Linear(*widths, bias=bias), scale * torch.randn(rows, frames, widths[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.device.quantized_linear._FRAMES", at_once)
        found = QuantizedLinear(linear)(inputs)

    wanted = by_hand(linear, inputs)
    assert found.dtype == torch.float32
    assert found.shape == wanted.shape
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=2e-2 * scale)


@in_eight_bits
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_bfloat16_goes_in_and_comes_out(bias):
    torch.manual_seed(0)
    linear, inputs = nn.Linear(200, 300, bias=bias), torch.randn(2, 30, 200).bfloat16()

    found = QuantizedLinear(linear, torch.bfloat16)(inputs)

    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), by_hand(linear, inputs.float()), rtol=2e-2, atol=2e-2)


def test_what_is_rounded_stays_as_it_is_when_a_network_is_converted():
    layers = nn.Sequential(QuantizedLinear(nn.Linear(64, 64).half()), nn.Linear(64, 64))

    layers.to(torch.bfloat16)

    assert layers[0].scales.dtype == torch.float32
    assert layers[0].bias.dtype == torch.float32
    assert layers[1].weight.dtype == torch.bfloat16


@in_eight_bits
@torch.no_grad()
def test_a_frame_gives_the_same_whatever_stands_beside_it():
    linear = QuantizedLinear(nn.Linear(256, 130))
    frames = torch.randn(2, 9, 256)
    loud = frames.clone()
    loud[1:] *= 1000

    assert torch.equal(linear(frames)[0], linear(loud)[0])
    for frame in range(9):
        assert torch.equal(linear(frames[:1, frame : frame + 1])[0, 0], linear(frames)[0, frame])


@in_eight_bits
@torch.no_grad()
def test_silence_gives_the_bias():
    linear = nn.Linear(64, 5)

    assert torch.equal(QuantizedLinear(linear)(torch.zeros(3, 64)), linear.bias.expand(3, 5))


def test_only_large_products_are_rounded():
    module = nn.Sequential(nn.Linear(256, 256), nn.Sequential(nn.Linear(8, 8)), nn.Conv1d(256, 256, 3))

    _replace_products(module, QuantizedLinear, is_worth_quantizing)

    assert [type(part) for part in (module[0], module[1][0], module[2])] == [QuantizedLinear, nn.Linear, nn.Conv1d]


@in_eight_bits
@pytest.mark.parametrize("activations", [torch.float32, torch.bfloat16])
def test_a_model_encodes_nearly_the_same_in_less_memory(activations, monkeypatch):
    monkeypatch.setattr("models.device.quantized_linear._LEAST_WEIGHTS", 1)
    monkeypatch.setattr("models.model.default_dtype", lambda _: activations)
    clips = [golden.clip(name) for name in golden.CLIPS]
    exact, rounded = (load_model(MODEL, dtype=dtype) for dtype in (torch.float32, torch.int8))
    features = exact.features(clips)

    wanted, found = exact.encode(*features)[0], rounded.encode(*features)[0]

    assert rounded.model.dtype == torch.int8
    assert found.dtype == activations
    assert (found.float() - wanted).norm() < 0.05 * wanted.norm()
    assert rounded.weight_bytes < exact.weight_bytes
    together = rounded.transcribe(clips)
    assert [one.tokens for one in together] == [rounded.transcribe([clip])[0].tokens for clip in clips]


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        pytest.param("jasper-small", "cpu", "int8 is for Conformers", marks=in_eight_bits),
        ("canary-small", "cuda", "int8 is for CPUs"),
    ],
)
def test_models_without_8_bit_products_are_refused(name, device, message):
    with pytest.raises(ValueError, match=message):
        load_model(golden.GOLDEN / name / "model.nemo", device, torch.int8)


def test_a_processor_without_such_products_says_so(monkeypatch):
    monkeypatch.setattr("models.device.precision.multiplies_eight_bits_exactly", lambda: False)

    with pytest.raises(ValueError, match="VNNI"):
        load_model(MODEL, dtype=torch.int8)
