"""Fits processes to the CUDA that computes nothing.

cuDNN is turned off, which would have to choose among kernels, and what transformers writes ends after a token, because
no device would say that it ends. Fast paths agree with plain operations, because results are whatever was in memory,
and so do words; but NULL_CUDA_FAULT may name one and what it does: PATH=disagrees, raises, ends or hangs, or, for a
kernel that agrees, raises_later or ends_later; by any=ends, each kernel of ours and each capture ends the process.
"""

import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Changed:
    """Finds a module, and changes it once it is there."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self._name, self._change = name, change

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def _turn_cudnn_off(_: ModuleType) -> None:
    import torch

    torch._C._set_cudnn_enabled(False)
    torch._C._set_sdp_use_cudnn(False)


def _let_all_agree(module: Any) -> None:
    judge, kernel = module.FastPaths.judge, module.FastPaths.kernel
    faulty, _, fault = os.environ.get("NULL_CUDA_FAULT", "").partition("=")

    def agreeing(self: Any, path: str, why: str, *, agrees: bool) -> bool:
        if path == faulty and fault == "raises":
            raise RuntimeError("an illegal instruction was encountered")
        if path == faulty and fault == "ends":
            os.abort()
        while path == faulty and fault == "hangs":
            time.sleep(1)
        return bool(judge(self, path, why, agrees=path != faulty or fault in _LATER))

    def kernel_that_fails(self: Any, path: str, *arguments: Any) -> Any:
        found = kernel(self, path, *arguments)
        return _LATER[fault] if found and path == faulty and path not in self._tried else found

    module.FastPaths.judge = agreeing
    if fault in _LATER:
        module.FastPaths.kernel = kernel_that_fails


def _let_words_be_the_same(module: Any) -> None:
    module.has_same_words = lambda *_, **__: os.environ.get("NULL_CUDA_FAULT") != "known_speech=disagrees"


def _let_texts_end(module: Any) -> None:
    turns = itertools.cycle((True, False))
    module.GenerationMixin._has_unfinished_sequences = lambda *_, **__: next(turns)


def _end(*_: object, **__: object) -> None:
    os.abort()


def _raise(*_: object, **__: object) -> None:
    raise RuntimeError("too many resources requested for launch")


_LATER = {"raises_later": _raise, "ends_later": _end}


def _let_kernels_end(module: Any) -> None:
    module.JITFunction.run = _end


def _let_captures_end(module: Any) -> None:
    module.CUDAGraph.capture_begin = _end


if os.environ.get("NULL_CUDA_FAULT") == "any=ends":
    sys.meta_path.insert(0, _Changed("triton.runtime.jit", _let_kernels_end))
    sys.meta_path.insert(0, _Changed("torch.cuda.graphs", _let_captures_end))
sys.meta_path.insert(0, _Changed("torch.backends.cudnn", _turn_cudnn_off))
sys.meta_path.insert(0, _Changed("models.device.fast_paths", _let_all_agree))
sys.meta_path.insert(0, _Changed("service.engine.known_speech", _let_words_be_the_same))
sys.meta_path.insert(0, _Changed("transformers.generation.utils", _let_texts_end))
