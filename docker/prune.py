"""Remove files from an image that the service never opens: `prune.py VENV TORCH`.

Prints the bytes that each pattern saves. docker/image_test.py transcribes with every decoder in the result.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

# Patterns below the folder of packages.
CUTS = {
    "torch/test": "the tests of torch's C++",
    "torch/include": "headers for extensions, which are not built here",
    "torch/share": "the same for CMake",
    "torch/lib/*_test.so": "tests",
    "torch/lib/lib*backend*.so": "examples of back-ends",
    "torch/bin/[!t]*": "tests and protoc; torch_shm_manager stays",
    "torch/bin/test_*": "tests",
    "torch/testing/_internal/*": "tests, but for what PyTorch itself imports",
    "onnxruntime/capi/libonnxruntime.so*": "for programs in C; Python's module holds all of it once more",
    "onnxruntime/transformers": "tools that convert models",
    "onnxruntime/quantization": "tools that convert models",
    "onnxruntime/tools": "tools that convert models",
    "onnxruntime/datasets": "examples",
    "numpy/_core/include": "headers for extensions",
    "numpy/*/lib/*.a": "the same, to be linked",
    "*/tests": "tests",
    "*/*/tests": "tests",
    "*/*/*/tests": "tests",
    "*/*/*/*/tests": "tests",
    "nvidia/*/lib/*.a": "to be linked",
    "triton/backends/nvidia/lib/cupti/*.a": "to be linked",
}
KEPT = {
    "torch/testing/_internal/__init__.py",
    "torch/testing/_internal/common_dtype.py",
    "torch/testing/_internal/logging_tensor.py",
}

# Packages that torch needs only for its compilers and for extensions, which the service does not use. In a CUDA build
# of gigabytes, they are too small to matter.
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
    """Remove the files, and print what was removed."""
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
    """Return the bytes of a file; of a link, its own."""
    return file.lstat().st_size


if __name__ == "__main__":
    main()
