"""Compile the kernels for an H100, in the shapes of parakeet-tdt-0.6b, and print what each takes; needs no GPU."""

import json

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.kernels.convolution import _convolve
from models.kernels.residual_norm import _add_and_norm
from models.kernels.transducer import _lstm_layer, _project, _score_tile, _walk

# Types of arguments, by kernel or for all; every other one points to values in the model's precision.
INTEGERS = dict.fromkeys(("rows", "frames", "tiles", "columns", "max_symbols"), "i32")
COUNTERS = ("lengths", "symbols", "last_frame", "counts", "tokens", "token_frames", "token_durations",
            "duration_values", "found", "found_out", "label_out", "labels")  # fmt: skip
SCORES = {"best": "*fp32", "choice": "*i32", "mass": "*fp32", "confidence": "*fp32", "time": "*i64"}
TYPES = INTEGERS | dict.fromkeys(COUNTERS, "*i64") | SCORES
WIDTHS = {"ROWS": 16, "UNITS": 16, "SLICE": 64, "WIDTH": 640}
TILES = {"ROWS": 16, "LABELS": 64, "WIDTH": 64}
KERNELS = [
    (_score_tile, {"bias": "*fp32"}, {"WINDOW": 8, "JOINT": 640, "ACTIVATION": 0} | TILES),
    (_walk, {}, {"BLANK": 1024, "WINDOW": 8, "LABEL_TILES": 17, "TILES": 32, "LABELS": 64, "DURATIONS": 5}),
    (_lstm_layer, {"bias": "*fp32"}, {"FIRST": True} | WIDTHS),
    (_lstm_layer, {"bias": "*fp32"}, {"FIRST": False} | WIDTHS),
    (_project, {}, {"JOINT": 640} | WIDTHS),
    (
        _convolve,
        {"time": "i32", "valid": "*i1"},
        {"WIDTH": 1024, "KERNEL": 9, "BIASED": True, "SWISH": True, "FRAMES": 32, "CHANNELS": 64},
    ),
    (_add_and_norm, {"share": "fp32", "epsilon": "fp32"}, {"WIDTH": 1024, "BLOCK": 1024}),
]  # fmt: skip

for dtype in ("bf16", "fp32"):
    for kernel, types, constants in KERNELS:
        known = TYPES | types | dict.fromkeys(constants, "constexpr")
        signature = {argument: known.get(argument, f"*{dtype}") for argument in kernel.arg_names}
        places = {(kernel.arg_names.index(argument),): value for argument, value in constants.items()}
        options = {"num_warps": 1} if kernel is _walk else {}
        compiled = triton.compile(
            ASTSource(kernel, signature, places), target=GPUTarget("cuda", 90, 32), options=options
        )
        assembly = compiled.asm["ptx"]
        result = {"kernel": kernel.__name__, "dtype": dtype, "shared": compiled.metadata.shared}
        result |= {"spilled": assembly.count("st.local"), "mma": assembly.count("mma")}
        print(json.dumps(result))  # noqa: T201  # what it is for
