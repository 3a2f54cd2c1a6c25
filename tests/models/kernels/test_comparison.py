"""Kernels that compute wrong numbers, or fail at the model's own sizes, are left out; the others stay."""

from dataclasses import replace

import pytest
import torch

from models.comparison import compare, compare_kernels
from models.config import AttentionContext
from models.device.fast_paths import FAST_PATHS, FastPath, FastPaths
from models.encoders.attention import RelativeAttention
from models.encoders.conformer import ConformerEncoder, ConvolutionModule
from models.encoders.subsampling import Subsampling
from models.kernels import (
    decoder_step_on,
    depthwise_halves_on,
    gated_convolution_on,
    relative_attention_on,
    residual_norm_on,
    swish_expansion_on,
)
from tests.models.small import SMALL

CPU, GPU = torch.device("cpu"), torch.device("cuda:99")
IN_ENCODER = ("models.kernels.convolution.gated_convolution", FastPath.CONVOLUTION)
IN_ATTENTION = ("models.kernels.attention.relative_attention", FastPath.ATTENTION)
IN_SUMS = ("models.kernels.residual_norm.residual_norm", FastPath.SUMS)


SHAPE = replace(SMALL, mels=16, width=32, feed_forward_width=64, subsampling_channels=16)


FOUND = {
    FastPath.ATTENTION: lambda device: relative_attention_on(device, torch.bfloat16, 64),
    FastPath.CONVOLUTION: lambda device: gated_convolution_on(device, torch.bfloat16),
    FastPath.FEED_FORWARD: lambda device: swish_expansion_on(device, torch.bfloat16, torch.Size((64, 64))),
    FastPath.SUBSAMPLING: lambda device: depthwise_halves_on(device, torch.bfloat16),
    FastPath.SUMS: lambda device: residual_norm_on(device, torch.bfloat16),
    FastPath.DECODER_STEP: lambda device: decoder_step_on(device, torch.bfloat16),
}
CONTEXTS = [AttentionContext(4, 1, in_chunks=True), AttentionContext(3, 0, in_chunks=True), AttentionContext(2, 4)]


@pytest.fixture
def encoder(monkeypatch):
    """A folded encoder, whose kernels run in Triton's interpreter."""
    monkeypatch.setattr(FastPaths, "suits", lambda *_: True)
    monkeypatch.setattr("models.comparison._MANY", (9, 4, 1, 0))
    return folded(SHAPE)


def folded(shape):
    encoder = ConformerEncoder(shape).eval().requires_grad_(False)
    for module in list(encoder.modules()):
        if isinstance(module, ConvolutionModule | RelativeAttention | Subsampling):
            module.fold()
    return encoder


def changed(monkeypatch, kernel, change):
    module, _, name = kernel.rpartition(".")
    right = getattr(__import__(module, fromlist=[name]), name)
    monkeypatch.setattr(kernel, lambda *args, **options: change(args, right(*args, **options)))


def test_kernels_that_compute_what_plain_operations_compute_are_used(encoder):
    compare_kernels(encoder, None, CPU, torch.float32)

    used = (FastPath.ATTENTION, FastPath.CONVOLUTION, FastPath.SUMS)
    assert {path: FAST_PATHS.states()[path] for path in used} == dict.fromkeys(used, "used")


@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("context", CONTEXTS)
def test_encoders_for_streams_use_them_too_except_that_of_the_subsampling(context, dtype, caplog):
    streaming = replace(
        SHAPE,
        attention_context=context,
        convolution_norm="layer_norm",
        convolution_left=SHAPE.kernel_size - 1,
        causal_subsampling=True,
    )

    compare_kernels(folded(streaming).to(dtype), None, CPU, dtype)

    used = (FastPath.ATTENTION, FastPath.CONVOLUTION, FastPath.SUMS)
    assert {path: FAST_PATHS.states()[path] for path in used} == dict.fromkeys(used, "used")
    assert not FAST_PATHS.is_barred(FastPath.SUBSAMPLING)
    # In bfloat16 the expansion would be timed against the library's, by a device.
    assert {record.args[0] for record in caplog.records} <= {FastPath.FEED_FORWARD}


@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm"])
def test_kernels_are_taken_in_inference_alone_and_change_nothing(norm, monkeypatch):
    encoder, taken, find = folded(replace(SHAPE, convolution_norm=norm)), set(), FAST_PATHS.kernel
    features, lengths = torch.randn(2, SHAPE.mels, 80), torch.tensor([80, 33])
    with torch.no_grad():
        wanted, counts = encoder(features, lengths)
    compare_kernels(encoder, None, CPU, torch.float32)

    def note(path, *about):
        if found := find(path, *about):
            taken.add(path)
        return found

    monkeypatch.setattr(FAST_PATHS, "kernel", note)
    encoder(features, lengths)  # with gradients
    assert not taken
    with torch.no_grad():
        found, _ = encoder(features, lengths)

    assert taken == {FastPath.ATTENTION, FastPath.CONVOLUTION, FastPath.SUMS}
    for one, other, count in zip(found, wanted, counts, strict=True):
        torch.testing.assert_close(one[:count], other[:count], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kernel", "path"), [IN_ENCODER, IN_ATTENTION])
@pytest.mark.parametrize("wrong", [lambda result: 1.1 * result, lambda result: result * float("nan")])
def test_a_kernel_that_computes_wrong_numbers_is_left_out(encoder, monkeypatch, caplog, kernel, path, wrong):
    changed(monkeypatch, kernel, lambda _, result: wrong(result))

    compare_kernels(encoder, None, CPU, torch.float32)

    states = FAST_PATHS.states()
    assert states[path] == "disagreed"
    assert states[FastPath.SUMS] == "used"
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [f"fast path {path} disagreed"]
    if path is FastPath.CONVOLUTION:
        assert gated_convolution_on(CPU, torch.float32) is None


@pytest.mark.parametrize("path", FOUND)
def test_no_kernel_is_used_on_a_cpu_nor_before_it_agreed_with_plain_operations(path):
    assert FOUND[path](CPU) is None
    assert FOUND[path](GPU) is None
    assert FAST_PATHS.states() == {}


@pytest.mark.parametrize("path", [FastPath.ATTENTION, FastPath.FEED_FORWARD, FastPath.DECODER_STEP])
def test_on_a_device_that_lacks_what_it_needs_plain_operations_do_its_work(path, caplog):
    # This machine may have no such device, and no driver for one.
    compare(path, lambda: (FOUND[path](GPU)(),), lambda: ())

    assert [record.getMessage().split(",")[0] for record in caplog.records] == [f"fast path {path} failed"]


@pytest.mark.usefixtures("encoder")
def test_what_agreed_in_one_dtype_is_not_used_in_another(encoder):
    compare_kernels(encoder, None, CPU, torch.float32)

    assert gated_convolution_on(CPU, torch.float32) is not None
    assert gated_convolution_on(CPU, torch.bfloat16) is None


@pytest.mark.usefixtures("encoder")
def test_a_kernel_that_would_not_be_used_is_not_said_to_be():
    local = replace(SHAPE, attention_context=AttentionContext(2, 2), global_tokens=1)
    compare_kernels(folded(local), None, CPU, torch.float32)

    # A global token has no kernel, float32 none for the expansion, and a CPU's subsampling computes clip by clip.
    assert set(FAST_PATHS.states()) == {FastPath.CONVOLUTION, FastPath.SUMS}


@pytest.mark.usefixtures("encoder")
def test_one_that_agrees_but_is_slower_is_left_out_and_named_so(monkeypatch):
    torch.manual_seed(0)
    seconds = iter(range(10))
    monkeypatch.setattr("models.kernels._seconds_of", lambda *_: next(seconds))  # plain operations come first

    compare_kernels(folded(SHAPE).bfloat16(), None, CPU, torch.bfloat16)

    assert FAST_PATHS.states()[FastPath.FEED_FORWARD] == "slower"


def test_a_kernel_that_fails_at_a_large_size_only_is_left_out(encoder, monkeypatch):
    def late(args, result):
        if args[0].numel() > 200:
            raise RuntimeError("too many resources requested")
        return result

    changed(monkeypatch, IN_SUMS[0], late)

    compare_kernels(encoder, None, CPU, torch.float32)

    assert FAST_PATHS.states()[FastPath.SUMS] == "failed"


def test_memory_that_runs_out_says_nothing_of_a_kernel(encoder, monkeypatch):
    def refuse(*_):
        raise torch.OutOfMemoryError

    changed(monkeypatch, IN_SUMS[0], refuse)

    with pytest.raises(torch.OutOfMemoryError):
        compare_kernels(encoder, None, CPU, torch.float32)
    assert not FAST_PATHS.is_barred(FastPath.SUMS)


def test_none_of_them_is_tried_where_the_operator_wants_none(encoder, monkeypatch):
    def refuse(*_):
        raise AssertionError("tried")

    for kernel, _ in (IN_ENCODER, IN_ATTENTION, IN_SUMS):
        changed(monkeypatch, kernel, refuse)
    FAST_PATHS.limit("none")

    compare_kernels(encoder, None, CPU, torch.float32)

    assert set(FAST_PATHS.states().values()) == {"off"}


def test_trials_are_announced_from_outside_in(encoder):
    heard = []
    FAST_PATHS.on_trying = heard.append

    compare_kernels(encoder, None, CPU, torch.float32)

    assert heard[-1] is None
    assert set(heard) >= {None, FastPath.SUMS, FastPath.ATTENTION}


def test_names_of_paths_are_checked():
    with pytest.raises(ValueError, match=r"'attention,warp' are not auto, none, or some of attention, convolution"):
        FAST_PATHS.limit("attention,warp")
    FAST_PATHS.limit("attention, loop")
    assert FAST_PATHS.allows(FastPath.ATTENTION)
    assert FAST_PATHS.allows(FastPath.LOOP)
    assert not FAST_PATHS.allows(FastPath.SUMS)
