"""Triton's interpreter, mended; and what kernels do in it, counted.

With NumPy 2.4 it makes numbers of arrays of one value, which must have no dimension. In bfloat16, whose values NumPy
holds as 16-bit integers, it multiplies and adds these integers, and cuts off what a GPU rounds.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from torch import Tensor

# The files that need Triton are left out where it is not installed (on Linux, make setup does it), but never in CI.
WITHOUT_TRITON = [] if find_spec("triton") or os.environ.get("CI") == "true" else ["test_*.py"]


@cache
def mend():
    """Mend it, where kernels are interpreted."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    try:
        import triton.language as tl
        from triton.runtime import interpreter
        from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
    except ImportError:  # its tests are left out
        pass
    else:
        patch_tensor = interpreter._patch_lang_tensor
        binary_op, cast_impl, create_dot = (
            InterpreterBuilder.binary_op, InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot
        )  # fmt: skip

        def _patch_tensor(tensor, scope):
            patch_tensor(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

        def is_half(handle):
            return handle.dtype.scalar == tl.bfloat16

        def widened(handle):
            """Return values in float32, exactly."""
            if not is_half(handle):
                return handle
            return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

        def rounded(values):
            """Return float32 values in bfloat16, rounded to the nearest, of two as near to the even one."""
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            quiet = (bits >> 16) | 0x40  # of what is no number
            halves = np.where(np.isnan(values), quiet, nearest).astype(np.uint16)
            return TensorHandle(halves.reshape(np.shape(values)), tl.bfloat16)

        def _binary_op(self, lhs, rhs, op):
            if not is_half(lhs) or op.__name__.startswith("bitwise"):
                return binary_op(self, lhs, rhs, op)
            found = op(widened(lhs).data, widened(rhs).data)
            return TensorHandle(found, tl.int1) if found.dtype == bool else rounded(found)

        def _cast_impl(self, src, dst_type):
            if is_half(src):
                return cast_impl(self, widened(src), dst_type) if dst_type.scalar != tl.bfloat16 else src
            return rounded(src.data) if dst_type.scalar == tl.bfloat16 else cast_impl(self, src, dst_type)

        def _create_dot(self, a, b, *others):
            return create_dot(self, widened(a), widened(b), *others)

        interpreter._patch_lang_tensor = _patch_tensor
        InterpreterBuilder.binary_op = _binary_op
        InterpreterBuilder.cast_impl = _cast_impl
        InterpreterBuilder.create_dot = _create_dot
        InterpreterBuilder.create_fp_to_fp = lambda self, src, dst_type, _: _cast_impl(self, src, dst_type)


@dataclass
class Counts:
    """What kernels did.

    Attributes:
        read: values that they read from the tensors.
        products: products of matrices.
    """

    read: int = 0
    products: int = 0


@contextmanager
def counted(*tensors: Tensor) -> Iterator[Counts]:
    """Count what the kernels in the block do, and how much they read from some tensors."""
    from triton.runtime.interpreter import InterpreterBuilder

    counts = Counts()
    memory = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors]
    load, dot = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_dot

    def create_masked_load(self: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        for begin, end in memory:
            counts.read += int(((pointers.data >= begin) & (pointers.data < end) & mask.data).sum())
        return load(self, pointers, mask, *others)

    def create_dot(self: Any, *factors: Any) -> Any:
        counts.products += 1
        return dot(self, *factors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", create_masked_load)
        patch.setattr(InterpreterBuilder, "create_dot", create_dot)
        yield counts
