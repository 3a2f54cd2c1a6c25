"""Compile the kernels for an H100, in the shapes of parakeet-tdt-0.6b, and print what each takes; needs no GPU."""

import json

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.kernels import transducer

INTS = ("rows", "frames", "tiles", "columns", "max_symbols")
LONG = ("time", "lengths", "symbols", "last_frame", "counts", "tokens", "token_frames", "token_durations",
        "duration_values", "found", "found_out", "label_out", "labels")  # fmt: skip
FLOATS = ("best", "mass", "confidence")
TILE = {"ROWS": 16, "UNITS": 16, "SLICE": 64, "WIDTH": 640}
KERNELS = {
    "_score_tile": {"WINDOW": 8, "JOINT": 640, "ACTIVATION": 0, "ROWS": 16, "LABELS": 64, "WIDTH": 64},
    "_walk": {"BLANK": 1024, "WINDOW": 8, "LABEL_TILES": 17, "TILES": 32, "LABELS": 64, "DURATIONS": 5},
    "_lstm_layer": {"FIRST": True} | TILE,
    "_lstm_layer again": {"FIRST": False} | TILE,
    "_project": {"JOINT": 640} | TILE,
}


def kind(name, dtype):
    if name in INTS:
        return "i32"
    if name in LONG:
        return "*i64"
    if name in FLOATS or (name == "bias" and dtype == "fp32"):
        return "*fp32"
    return "*i32" if name == "choice" else f"*{dtype}"


for dtype in ("bf16", "fp32"):
    for name, constants in KERNELS.items():
        kernel = getattr(transducer, name.split()[0])
        signature = {name: "constexpr" if name in constants else kind(name, dtype) for name in kernel.arg_names}
        source = ASTSource(
            kernel, signature, {(kernel.arg_names.index(key),): value for key, value in constants.items()}
        )
        options = {"num_warps": 1} if name == "_walk" else {}
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        spilled = compiled.asm["ptx"].count("st.local")
        result = {"kernel": name, "dtype": dtype, "shared": compiled.metadata.shared, "spilled": spilled}
        print(json.dumps(result | {"mma": compiled.asm["ptx"].count("mma")}))  # noqa: T201  # what it is for
