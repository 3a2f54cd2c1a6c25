"""The kernels of a step of an attention decoder give what the operations give, in eight launches a layer."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn.functional import gelu, layer_norm, linear, relu
from torch.utils._python_dispatch import TorchDispatchMode

from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder
from models.kernels import decoder_step
from models.kernels.decoder_step import attend_from_token, multiply
from models.search.attention import LengthBound
from models.search.attention_search import AttentionSearch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 2e-2}
ACTIVATIONS = {"none": lambda values: values, "relu": relu, "gelu": gelu}
LABELS, END = 30, 3
# What takes no kernel: views, and memory.
FREE = ("view", "unsqueeze", "squeeze", "select", "slice", "expand", "new_empty", "empty", "detach", "alias")

pytestmark = pytest.mark.parametrize("device", DEVICES)
few_examples = settings(deadline=None, max_examples=4, phases=(Phase.reuse, Phase.generate))
dtypes = st.sampled_from(sorted(TOLERANCE, key=str))


def decoder(device, layers=2, activation="relu", heads=2, beam=1):
    torch.manual_seed(1)
    config = AttentionDecoderConfig(16, layers, heads, 24, activation, positions=64, length_margin=None, beam=beam)
    made = AttentionDecoder(config, 16, LABELS).eval().requires_grad_(requires_grad=False)
    made.embedding.weight.mul_(1.5)
    made.output_bias[END] = 1.0  # texts end here and there
    for layer in made.layers:
        layer.fold()
    return made.to(device)


def search(model, *batch):
    return [row.tokens for row in AttentionSearch(model, END, graphed=False).search(*batch).rows()]


@few_examples
@given(
    seed=st.integers(0, 1000),
    dtype=dtypes,
    rows=st.integers(1, 20),
    width=st.integers(1, 150),
    columns=st.integers(1, 40),
    normed=st.booleans(),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    added=st.booleans(),
    tile=st.sampled_from([decoder_step.FEW, decoder_step.MANY]),
)
def test_products_are_those_of_the_operations(
    device, seed, dtype, rows, width, columns, normed, activation, added, tile
):
    torch.manual_seed(seed)
    inputs, weight, bias = torch.randn(rows, width), torch.randn(columns, width) / width**0.5, torch.randn(columns)
    before, norm = torch.randn(rows, columns), torch.randn(2, width)
    inputs, weight, bias, before, norm = (tensor.to(device, dtype) for tensor in (inputs, weight, bias, before, norm))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_step, "chosen_tile", lambda *_: tile)
        found = multiply(
            inputs,
            weight,
            bias,
            norm=(*norm, 1e-5) if normed else None,
            activation=activation,
            before=before if added else None,
        )

    exact = inputs.float()
    if normed:
        exact = layer_norm(exact, (width,), *norm.float(), 1e-5)
    wanted = ACTIVATIONS[activation](linear(exact, weight.float(), bias.float()))
    wanted = wanted + before.float() if added else wanted
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), wanted, atol=10 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.slow
@few_examples
@given(
    dtype=dtypes,
    heads=st.sampled_from([1, 4]),
    activation=st.sampled_from(["relu", "gelu"]),
    rows=st.integers(1, 3),
    frames=st.integers(1, 5) | st.integers(64, 70),
    tokens=st.integers(1, 2),
)
@torch.no_grad()
def test_logits_and_what_is_kept_are_those_of_the_operations(device, dtype, heads, activation, rows, frames, tokens):
    model = decoder(device, activation=activation, heads=heads).to(dtype)
    lengths = torch.randint(1, frames + 1, (rows,), device=device)
    memory = model.memory(torch.randn(rows, frames, 16).to(device, dtype), lengths)
    wanted_cache, cache = model.cache(rows, 70), model.cache(rows, 70)
    read = torch.randint(LABELS, (rows, tokens), device=device)

    for place in range(tokens):
        position = torch.tensor([place], device=device)
        wanted = model(read[:, place : place + 1], position, memory, wanted_cache)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("models.heads.attention_decoder.decoder_step_on", lambda *_: (multiply, attend_from_token))
            found = model(read[:, place : place + 1], position, memory, cache)
        tolerance = {"atol": 5 * TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
        torch.testing.assert_close(found, wanted, **tolerance)
        torch.testing.assert_close(cache.keys, wanted_cache.keys, **tolerance)
        torch.testing.assert_close(cache.values, wanted_cache.values, **tolerance)


@pytest.mark.parametrize("beam", [1, 2])
@torch.no_grad()
def test_a_search_in_bfloat16_finds_the_same_tokens_although_labels_are_nearly_equal(device, beam, monkeypatch):
    """Each odd label is the one before it, with a higher bias, which rounding to bfloat16 would hide."""
    model = decoder(device, layers=1, beam=beam)
    model.embedding.weight.copy_(model.embedding.weight.mul(64).round() / 16)
    model.embedding.weight[1:LABELS:2] = model.embedding.weight[: LABELS - 1 : 2]
    model.output_bias[1:LABELS:2] = 2.0**-6
    model.to(torch.bfloat16)
    encoded, lengths = (3 * torch.randn(3, 5, 16)).to(device, torch.bfloat16), torch.tensor([5, 0, 2], device=device)
    bound = LengthBound(torch.tensor([5, 0, 5], device=device), longest=5)
    prompts = torch.full((3, 2), 4, device=device)

    if device == "cpu":  # the sums of a GPU; see product_of_scores
        monkeypatch.setattr(
            "models.heads.attention_decoder.product_of_scores",
            lambda inputs, weight, bias: linear(inputs.float(), weight.float(), bias.float()),
        )
    wanted = search(model, encoded, lengths, prompts, bound)
    monkeypatch.setattr("models.heads.attention_decoder.decoder_step_on", lambda *_: (multiply, attend_from_token))

    assert search(model, encoded, lengths, prompts, bound) == wanted
    chosen = {token for row in wanted for token in row}
    assert chosen
    assert beam > 1 or all(token % 2 for token in chosen)


@torch.no_grad()
def test_a_layer_of_a_step_is_eight_launches(device, monkeypatch):
    launched = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            if not operation.__name__.startswith(FREE):
                launched.append(operation.__name__)
            return operation(*args, **(kwargs or {}))

    class Kernel:
        def __getitem__(self, grid):
            return lambda *_, **__: launched.append("kernel")

    monkeypatch.setattr("models.heads.attention_decoder.decoder_step_on", lambda *_: (multiply, attend_from_token))
    monkeypatch.setattr(decoder_step, "_multiply", Kernel())
    monkeypatch.setattr(decoder_step, "_attend_from_token", Kernel())

    def count(layers):
        launched.clear()
        model = decoder(device, layers)
        lengths = torch.tensor([5, 4], device=device)
        memory, cache = model.memory(torch.randn(2, 5, 16, device=device), lengths), model.cache(2, 8)
        token, position = torch.zeros(2, 1, dtype=torch.int64, device=device), torch.zeros(1, dtype=torch.int64)
        launched.clear()
        with Counting():
            model(token, position.to(device), memory, cache)
        return len(launched)

    assert count(3) - count(2) == 8
    assert count(3) <= 3 * 8 + 8
