"""Scores are compared as float32 sums on a GPU, so that kernels, graphs and plain operations find the same tokens."""

import os

import pytest
import torch
from torch.nn.functional import linear

from models.config import AttentionDecoderConfig
from models.heads import scores
from models.heads.attention_decoder import AttentionDecoder
from models.heads.ctc import CTCHead
from models.heads.transducer import Joint, Predictor
from models.search.attention import length_bound
from models.search.attention_search import AttentionSearch
from models.search.ctc import ctc_greedy
from models.search.drivers.eager import repeat
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.look_ahead import look_ahead
from models.search.state import TransducerState

ROUNDED = [torch.bfloat16, torch.float16]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LABELS, WIDTH, END = 12, 16, 3


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """A GPU, or a CPU whose products give the sums that those of a GPU give."""
    if request.param == "cpu":

        def of_gpu(inputs, weight, bias):
            return linear(inputs.float(), weight.float(), bias.float())

        monkeypatch.setattr("models.heads.scores.product_of_scores", of_gpu)
        monkeypatch.setattr("models.heads.attention_decoder.product_of_scores", of_gpu)
    return request.param


@torch.no_grad()
def with_close_scores(weight, bias):
    """Make each second label the same as the one before but for a bias that rounding hides, or equal."""
    weight.copy_(weight.mul(64).round())
    bias.zero_()
    weight[1 : LABELS + 1 : 2] = weight[:LABELS:2]
    bias[1 : LABELS + 1 : 4] = 2.0**-6


def transducer(durations, dtype, device):
    torch.manual_seed(3)
    predictor = Predictor(LABELS, WIDTH, 1).requires_grad_(requires_grad=False)
    joint = Joint(WIDTH, WIDTH, WIDTH, LABELS, durations).requires_grad_(requires_grad=False)
    with_close_scores(joint.output.weight, joint.output.bias)
    joint.output.bias[LABELS] = 80.0
    predictor.fold()
    return predictor.to(device, dtype), joint.to(device, dtype)


def encoded_for(rows, frames, dtype, device):
    encoded = 4 * torch.randn(rows, frames, WIDTH, generator=torch.Generator().manual_seed(4))
    return encoded.to(device, dtype), torch.arange(frames, frames - rows, -1).to(device)


def tokens(result):
    found = [row.tokens for row in result.rows()]
    assert any(found)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ROUNDED)
@torch.no_grad()
def test_scores_are_the_sums_and_not_rounded(dtype):
    encoded, lengths = encoded_for(2, 5, dtype, "cuda")
    _, joint = transducer((0, 1), dtype, "cuda")
    config = AttentionDecoderConfig(WIDTH, 1, 2, 24, "relu", positions=64, length_margin=None, beam=1)
    decoder = AttentionDecoder(config, WIDTH, LABELS).to("cuda", dtype)
    memory, cache = decoder.memory(encoded, lengths), decoder.cache(2, 8)
    token = torch.zeros(2, 1, dtype=torch.int64, device="cuda")

    head = CTCHead(WIDTH, LABELS).to("cuda", dtype)
    exact = linear(encoded.double(), head.projection.weight.double(), head.projection.bias.double())

    assert head(encoded).dtype == torch.float32
    torch.testing.assert_close(head(encoded).double(), exact, atol=1e-5, rtol=1e-5)
    assert head(encoded[:0]).shape == (0, 5, LABELS + 1)
    assert joint(encoded, encoded).shape == (2, 5, LABELS + 3)
    assert joint(encoded, encoded).dtype == torch.float32
    assert decoder(token, token[0], memory, cache).dtype == torch.float32


@pytest.mark.parametrize("dtype", ROUNDED)
def test_training_and_cpus_have_scores_in_their_dtype(dtype):
    inputs, layer = torch.randn(2, 3, WIDTH).to(dtype), torch.nn.Linear(WIDTH, 5).to(dtype)

    assert scores.scores_of(layer, inputs).requires_grad
    with torch.no_grad():
        assert torch.equal(scores.scores_of(layer, inputs), layer(inputs))


@torch.no_grad()
def test_of_ctc_scores_that_rounding_makes_equal_the_higher_wins(device):
    head = CTCHead(WIDTH, LABELS)
    with_close_scores(head.projection.weight, head.projection.bias)
    head.to(device, torch.bfloat16)
    encoded, lengths = encoded_for(3, 30, torch.bfloat16, device)

    found = tokens(ctc_greedy(head(encoded), lengths, head.blank))

    assert found != tokens(ctc_greedy(head(encoded).bfloat16(), lengths, head.blank))
    close = {label for row in found for label in row if label < LABELS}
    assert not {0, 4, 8} & close  # label 1 is label 0 with a higher bias
    assert {1, 5, 9} & close
    assert not {3, 7, 11} & close  # label 3 is label 2, whose index is lower
    assert {2, 6, 10} & close


@pytest.mark.parametrize("durations", [(), (0, 1, 2)], ids=["rnnt", "tdt"])
@torch.no_grad()
def test_a_transducer_finds_the_same_tokens_with_graphs_and_without(device, durations):
    predictor, joint = transducer(durations, torch.bfloat16, device)
    encoded, lengths = encoded_for(3, 12, torch.bfloat16, device)

    wanted = tokens(look_ahead(encoded, lengths, predictor, joint, 2))

    graphed = GraphedLookAhead(predictor, joint, 2, fused=False)
    assert tokens(graphed.search(encoded, lengths)) == wanted


@pytest.mark.parametrize("durations", [(), (0, 1, 2)], ids=["rnnt", "tdt"])
@torch.no_grad()
def test_a_transducer_finds_the_same_tokens_with_kernels_and_without(device, durations):
    if os.environ.get("CI") != "true":
        pytest.importorskip("triton", reason="Triton is not installed; on Linux, make setup does it")
    from models.search.fused_look_ahead import FusedLookAhead

    frames = 12 if device == "cuda" else 4  # interpreted, each takes a second
    predictor, joint = transducer(durations, torch.bfloat16, device)
    encoded, lengths = encoded_for(2, frames, torch.bfloat16, device)

    state = TransducerState(lengths, frames, predictor, joint, 2)
    repeat(FusedLookAhead(joint.encoder_projection(encoded), predictor, joint, 4).two_steps, state)

    found = tokens(state.result(columns=state.capacity))
    assert found == tokens(look_ahead(encoded, lengths, predictor, joint, 2))
    assert {label for row in found for label in row} & {1, 5, 9}


@pytest.mark.parametrize("beam", [1, 2])
@torch.no_grad()
def test_an_attention_decoder_finds_the_same_tokens_with_graphs_and_without(device, beam):
    torch.manual_seed(1)
    config = AttentionDecoderConfig(WIDTH, 1, 2, 24, "relu", positions=64, length_margin=5, beam=beam)
    decoder = AttentionDecoder(config, WIDTH, LABELS).eval().requires_grad_(requires_grad=False)
    with_close_scores(decoder.embedding.weight, decoder.output_bias)
    decoder.to(device, torch.bfloat16)
    encoded, lengths = encoded_for(3, 12, torch.bfloat16, device)
    prompts = torch.full((3, 2), 4, device=device)
    bound = length_bound(config, 8 * lengths, 8, encoded.size(1))

    with_graphs, without = (
        tokens(AttentionSearch(decoder, END, graphed=graphed).search(encoded, lengths, prompts, bound))
        for graphed in (True, False)
    )

    assert with_graphs == without
