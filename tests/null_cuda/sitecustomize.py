"""Turns cuDNN off in processes on the CUDA that computes nothing: it would have to choose among kernels."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutCudnn:
    """Finds torch.backends.cudnn, and turns it off once it is there."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch.backends.cudnn":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_turn_off(module: ModuleType) -> None:
            execute(module)
            import torch

            torch._C._set_cudnn_enabled(False)
            torch._C._set_sdp_use_cudnn(False)

        spec.loader.exec_module = execute_and_turn_off  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _WithoutCudnn())
