"""Products whose weights oneDNN has laid out: what ordinary ones give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import relu, silu

from models import load_model
from models.device.cpu import can_pack
from models.device.packed_linear import PackedLinear, is_worth_packing
from models.network import _replace_products
from tests.models import golden_data as golden

WIDE = 512


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 3),
    frames=st.integers(0, 40),
    widths=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    bias=st.booleans(),
    activation=st.sampled_from([("none", torch.nn.Identity()), ("relu", relu), ("swish", silu)]),
    whole=st.booleans(),
)
@torch.no_grad()
def test_they_give_what_ordinary_products_give(rows, frames, widths, bias, activation, whole):
    torch.manual_seed(0)
    linear = nn.Linear(*widths, bias=bias)
    inputs = torch.randn(rows, frames, widths[0] + 5)
    inputs = inputs[..., : widths[0]].contiguous() if whole else inputs[..., : widths[0]]

    found = PackedLinear.of(linear, activation[0])(inputs)

    wanted = activation[1](linear(inputs))
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not can_pack(torch.bfloat16), reason="this processor does not pack bfloat16")
@torch.no_grad()
def test_in_bfloat16_too():
    linear = nn.Linear(WIDE, WIDE).bfloat16()
    inputs = torch.randn(9, WIDE).bfloat16()

    torch.testing.assert_close(PackedLinear.of(linear)(inputs), linear(inputs), rtol=1e-2, atol=1e-2)


def test_only_large_products_are_packed():
    class Other(nn.Linear):
        pass

    module = nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Sequential(nn.Linear(WIDE, 63)), Other(WIDE, WIDE))
    taken = sum(tensor.nbytes for tensor in module.parameters())

    _replace_products(module, PackedLinear.of, lambda linear: is_worth_packing(linear.weight))

    assert [type(part) for part in module] == [PackedLinear, nn.ReLU, nn.Sequential, Other]
    assert type(module[2][0]) is nn.Linear
    assert sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())) == taken


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_cannot_be_packed_keeps_its_products(dtype, monkeypatch):
    monkeypatch.setattr("models.network.can_pack", lambda asked: asked is not dtype)

    model = load_model(golden.GOLDEN / "hybrid-tdt-ctc-bpe" / "model.nemo", dtype=dtype)

    assert not any(isinstance(module, PackedLinear) for module in model.model.network.modules())
    assert model.transcribe([golden.clip(golden.CLIPS[0])])[0].tokens


@pytest.mark.parametrize("name", ["hybrid-tdt-ctc-bpe", "jasper-small", "canary-small"])
def test_a_model_finds_the_same_tokens(name, monkeypatch):
    clips = [golden.clip(clip) for clip in golden.CLIPS]
    ordinary = load_model(golden.GOLDEN / name / "model.nemo")
    monkeypatch.setattr("models.device.packed_linear._LEAST_WEIGHTS", 1)

    packed = load_model(golden.GOLDEN / name / "model.nemo")

    conformer = packed.info()["family"] != "jasper"
    network = packed.model.network
    for part in (network.encoder, network.predictor, network.attention_decoder):
        assert part is None or any(isinstance(module, PackedLinear) for module in part.modules()) == conformer
    # A bias less for each layer of a predictor, and in its first no weights of the input, whose products are known.
    assert packed.weight_bytes <= ordinary.weight_bytes
    assert [one.tokens for one in packed.transcribe(clips)] == [one.tokens for one in ordinary.transcribe(clips)]


@pytest.mark.parametrize("well", [True, False])
@torch.no_grad()
def test_swish_is_applied_where_it_is_fast(well, monkeypatch):
    monkeypatch.setattr("models.device.packed_linear.fuses_swish_well", lambda: well)
    linear, inputs, apart = nn.Linear(WIDE, WIDE), torch.randn(9, WIDE), []
    monkeypatch.setattr(
        "models.device.packed_linear.silu", lambda product, inplace: apart.append(1) or silu(product, inplace)
    )

    found = PackedLinear.of(linear, "swish")(inputs)

    assert len(apart) == (not well)
    torch.testing.assert_close(found, silu(linear(inputs)), rtol=1e-5, atol=1e-5)
