"""Kernels are tested in Triton's interpreter, mended."""

from tests.triton_interpreter import WITHOUT_TRITON, mend

mend()
collect_ignore_glob = WITHOUT_TRITON
