"""Remove from an image what the service never opens: `prune.py VENV TORCH`; TORCH is the folder of PyTorch's packages.

It prints what each pattern saves. docker/image_test.py transcribes in the result.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

# Patterns for VENV's packages and TORCH.
CUTS = {
    "torch/test": "tests of PyTorch's C++",
    "torch/include": "headers for extensions",
    "torch/share": "CMake files",
    "torch/lib/*_test.so": "tests",
    "torch/lib/lib*backend*.so": "tests of back-ends",
    "torch/bin/[!t]*": "tests and protoc; torch_shm_manager stays",
    "torch/bin/test_*": "tests",
    "torch/testing/_internal/*": "tests; PyTorch imports those in KEPT",
    "onnxruntime/capi/libonnxruntime.so*": "the library for C; the Python module contains a copy",
    "onnxruntime/transformers": "tools that convert models",
    "onnxruntime/quantization": "tools that convert models",
    "onnxruntime/tools": "tools that convert models",
    "onnxruntime/datasets": "examples",
    "numpy/_core/include": "headers for extensions",
    "numpy/*/lib/*.a": "static libraries",
    "*/tests": "tests",
    "*/*/tests": "tests",
    "*/*/*/tests": "tests",
    "*/*/*/*/tests": "tests",
    "nvidia/*/lib/*.a": "static libraries",
    "triton/backends/nvidia/lib/cupti/*.a": "static libraries",
}
KEPT = {
    "torch/testing/_internal/__init__.py",
    "torch/testing/_internal/common_dtype.py",
    "torch/testing/_internal/logging_tensor.py",
}

# Packages that PyTorch needs only to compile models and extensions; the service compiles neither on a CPU. A CUDA build
# keeps them: they are small beside its gigabytes.
UNUSED_ON_CPU = (
    "sympy",
    "isympy.py",
    "mpmath",
    "networkx",
    "setuptools",
    "_distutils_hack",
    "distutils-precedence.pth",
)


def main() -> None:
    """Remove the files, and print megabytes."""
    venv, torch = Path(sys.argv[1]), Path(sys.argv[2])
    (packages,) = venv.glob("lib/python3*/site-packages")
    patterns = list(CUTS)
    if not (torch / "nvidia").exists():
        patterns += UNUSED_ON_CPU
        patterns += [f"{name}-*.dist-info" for name in UNUSED_ON_CPU]
    for pattern in patterns:
        saved = 0
        for folder in (packages, torch):
            for path in list(folder.glob(pattern)):
                if path.relative_to(folder).as_posix() not in KEPT and path.exists():
                    saved += sum(map(size, files(path)))
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        print(f"{saved / 1e6:8.1f} MB  {pattern}")


def files(path: Path) -> Iterator[Path]:
    """Return the files at and below a path."""
    return iter([path]) if path.is_file() else (inner for inner in path.rglob("*") if inner.is_file())


def size(file: Path) -> int:
    """Return the bytes of a file; a symbolic link counts as itself."""
    return file.lstat().st_size


if __name__ == "__main__":
    main()
