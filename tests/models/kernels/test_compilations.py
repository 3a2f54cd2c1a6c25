"""No length of a request has a kernel compiled anew: what Triton compiles for is the same for all of them."""

import os

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from models.config import AttentionContext
from models.heads.transducer import Joint, Predictor
from models.kernels import attention, decoder_step, feed_forward, subsampling
from models.search import fused_joint, fused_predictor

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="a GPU compiles at each launch")
# One, a multiple of 16, and another: the three for which Triton compiles a whole number's kernel anew.
NUMBERS = (1, 16, 18)


class Counted:
    """Stands for a kernel, and collects what its launches would be compiled for."""

    def __init__(self, kernel):
        function = JITFunction(kernel.fn, **kernel.kwargs)
        backend = make_backend(GPUTarget("cuda", 90, 32))
        self._bind = create_function_from_signature(function.signature, function.params, backend)
        self.compiled = set()

    def __getitem__(self, grid):
        def launch(*args, **options):
            _, specialised, of_launch = self._bind(*args, **options)
            self.compiled.add((str(specialised), str(of_launch)))

        return launch


@pytest.fixture
def counted(monkeypatch):
    def replace(module, name):
        kernel = Counted(getattr(module, name))
        monkeypatch.setattr(module, name, kernel)
        return kernel

    return replace


def test_of_a_feed_forward_expansion(counted):
    kernel = counted(feed_forward, "_expand")
    for blocks in NUMBERS:
        feed_forward.swish_expansion(torch.zeros(128 * blocks, 16), torch.zeros(16, 16), None)
    assert len(kernel.compiled) == 1


@pytest.mark.parametrize("context", [None, AttentionContext(64, 64)])
def test_of_attention(counted, context):
    kernel = counted(attention, "_attend")
    for reach in NUMBERS:
        starts, table = torch.tensor([0, reach]), torch.zeros(2, 2 * reach - 1, 16)
        merged, bias = torch.zeros(1, reach, 96), torch.zeros(2, 16)
        attention.relative_attention(merged, table, bias, bias, starts, starts[1:], reach, context)
    assert len(kernel.compiled) == 1


def test_of_subsampling(counted):
    first, later = counted(subsampling, "_halve_features"), counted(subsampling, "_halve_images")
    weight, bias = torch.zeros(16, 1, 3, 3), torch.zeros(16)
    for frames in NUMBERS:
        lengths = torch.tensor([frames])
        subsampling.halved_features(torch.zeros(1, 16, 4 * frames), lengths, weight, bias, weight, bias)
        for frames_in in (2 * frames - 1, 2 * frames):
            subsampling.halved_images(torch.zeros(1, frames_in, 4, 16), lengths, weight, bias)
    assert len(first.compiled) == len(later.compiled) == 1


def test_of_a_decoder_step(counted):
    kernel = counted(decoder_step, "_multiply")
    for rows in NUMBERS:
        decoder_step.multiply(torch.zeros(rows, 16), torch.zeros(16, 16), torch.zeros(16))
    assert len(kernel.compiled) == 1


def test_of_a_search(counted):
    kernels = counted(fused_joint, "_score_tile"), counted(fused_predictor, "_lstm_layer")
    kernels += (counted(fused_predictor, "_project"),)
    predictor, joint = Predictor(4, 16, 1).requires_grad_(False), Joint(6, 16, 16, 4).requires_grad_(False)
    predictor.fold()
    for rows in NUMBERS:
        found, state = torch.zeros(rows, dtype=torch.int64), torch.zeros(1, rows, 16)
        for frames in NUMBERS:
            scores = fused_joint.JointKernel(joint, rows, 8)
            scores(torch.zeros(rows, frames, 16), torch.zeros(rows, 16), found, found)
        of_predictor = fused_predictor.PredictorKernels(predictor, joint)
        of_predictor(found, found, state, state, state, torch.zeros(rows, 16))
    assert [len(kernel.compiled) for kernel in kernels] == [1, 1, 1]
