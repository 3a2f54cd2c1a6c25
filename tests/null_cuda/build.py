"""A CUDA that computes nothing, to try a GPU's code on a machine without a GPU.

torch's CUDA build runs over libraries of the same names, which this script makes: memory is taken and copied, streams,
events and captures are tracked, kernels are compiled but not run, and results are zeros. So it shows the calls of CUDA
and their order, what a capture would refuse, where the host would wait, the memory of a batch and the host's time to
launch it. It shows nothing about results, or about the speed of a GPU.

    python -m tests.null_cuda.build FOLDER     makes them for the torch that runs this, and prints what to run it with

It takes a C compiler and `nm`. cuDNN is left out by `sitecustomize.py`: torch would have it choose among kernels.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
SITE = Path(sysconfig.get_path("purelib"))
# Of each library, what its functions are called, the source of those that do more than to succeed, and its macro.
LIBRARIES = {
    "libcudart.so.13": (r"(__)?cuda[A-Z]", "runtime.c", "CUDART"),
    "libcublas.so.13": (r"cublas(?!Lt)", "libraries.c", "CUBLAS"),
    "libcublasLt.so.13": (r"cublasLt", "libraries.c", "CUBLASLT"),
    "libcufft.so.12": (r"cufft", "libraries.c", "CUFFT"),
    "libcudnn.so.9": (r"cudnn", "libraries.c", "CUDNN"),
    "libcurand.so.10": (r"curand", None, "CURAND"),
    "libcusparse.so.12": (r"cusparse(?!Lt)", None, "CUSPARSE"),
    "libcusparseLt.so.0": (r"cusparseLt", None, "CUSPARSELT"),
    "libcusolver.so.12": (r"cusolver", None, "CUSOLVER"),
    "libnccl.so.2": (r"nccl", None, "NCCL"),
    "libcufile.so.0": (r"cuFile", None, "CUFILE"),
    "libcupti.so.13": (r"cupti", "profiler.c", "CUPTI"),
    "libnvrtc.so.13": (r"nvrtc", None, "NVRTC"),
    "libnvshmem_host.so.3": (r"nvshmem", None, "NVSHMEM"),
}


def main() -> None:
    """Make all libraries, and print the environment variables that put them before NVIDIA's."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = _wanted_of_torch()
    for name, (pattern, source, macro) in LIBRARIES.items():
        functions = {symbol: version for symbol, version in wanted.items() if re.match(pattern, symbol)}
        _make(folder, name, functions, HERE / source if source else None, macro)
    _make(folder, "libcuda.so.1", _found_by_name("cu[A-Z]"), HERE / "driver.c", "CUDA")
    _make(folder, "libnvidia-ml.so.1", _found_by_name("nvml"), HERE / "libraries.c", "NVML")
    print(
        f"LD_PRELOAD={':'.join(str(folder / name) for name in LIBRARIES)} LD_LIBRARY_PATH={folder}"
        f" TRITON_LIBCUDA_PATH={folder} TRITON_INTERPRET=0 PYTHONPATH={HERE}"
    )


def _wanted_of_torch() -> dict[str, str]:
    """Return the functions that torch imports from other libraries, with the version of each."""
    wanted = {}
    for library in [*SITE.glob("torch/lib/*.so"), *SITE.glob("torch/_C*.so")]:
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
        ).stdout
        for line in listed.splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            wanted[symbol] = version.lstrip("@")
    return wanted


def _found_by_name(prefix: str) -> dict[str, str]:
    """Return the functions that torch looks for in drivers by name; it does so for all before it calls one."""
    text = (SITE / "torch" / "lib" / "libc10_cuda.so").read_bytes()
    names = re.findall(rb"\0(%b[A-Za-z0-9_]+)(?=\0)" % prefix.encode(), text)
    return dict.fromkeys(sorted({name.decode() for name in names}), "")


def _make(folder: Path, name: str, functions: dict[str, str], source: Path | None, macro: str) -> None:
    """Make a library: its source, and functions that succeed for all others that are wanted."""
    known = source.read_text(encoding="utf-8") if source else ""
    others = [function for function in functions if not re.search(rf"\b{function}(_v2)?\(", known)]
    succeeding = folder / f"{name}.c"
    succeeding.write_text("".join(f"int {function}() {{ return 0; }}\n" for function in others), encoding="utf-8")
    versions = folder / f"{name}.map"
    versions.write_text(f"{max(functions.values(), default='')} {{ global: *; }};\n", encoding="utf-8")
    sources = [succeeding, *([source] if source else [])]
    options = ["-I", SITE / "nvidia" / "cu13" / "include", f"-D{macro}", f"-Wl,--version-script={versions}"]
    command = ["gcc", "-w", "-O1", "-shared", "-fPIC", *options, f"-Wl,-soname,{name}"]
    subprocess.run([*command, "-o", folder / name, *sources, "-ldl", "-lpthread"], check=True)


if __name__ == "__main__":
    main()
