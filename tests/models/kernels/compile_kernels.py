"""Compile the kernels for a GPU's architecture, and print what each takes; needs no GPU.

`python tests/models/kernels/compile_kernels.py 90` compiles them for an H100, in the shapes of parakeet-tdt-0.6b; with
names behind it, those kernels alone.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.compiler import ASTSource

from models.kernels.attention import LAUNCH, LAUNCH_FROM_REGISTERS, _attend
from models.kernels.convolution import _convolve
from models.kernels.decoder_step import FEW, KEYS, MANY, SLICE, _attend_from_token, _multiply
from models.kernels.feed_forward import TILES, _expand
from models.kernels.residual_norm import _add_and_norm
from models.kernels.subsampling import _halve_features, _halve_images
from models.search.fused_joint import MASKED_SCORES_OF_MANY, SCORES_OF_FEW, SCORES_OF_MANY, _score_tile, _walk
from models.search.fused_predictor import UNITS_OF_FEW, UNITS_OF_MANY, _lstm_layer, _project
from training.losses.kernels.fold import _fold
from training.losses.kernels.lattice import WARPS, _sum_backwards, _sum_forwards
from training.losses.kernels.scores import _pull, _weigh

CAPABILITY, ONLY = int(sys.argv[1]), sys.argv[2:]
HALF = "bf16" if CAPABILITY >= 80 else "fp16"  # before Ampere, tensor cores multiply float16 alone
ASSEMBLER = [get_ptxas(CAPABILITY).path, "-v", f"-arch={sm_arch_from_capability(CAPABILITY)}", "-o", os.devnull]
# Types of arguments, by kernel or for all; every other one points to values in the model's precision.
INTEGERS = dict.fromkeys(("rows", "frames", "frames_in", "tiles", "columns", "max_symbols"), "i32")
COUNTERS = ("starts", "lengths", "symbols", "last_frame", "counts", "tokens", "token_frames", "token_durations",
            "duration_values", "found", "found_out", "label_out", "labels")  # fmt: skip
SCORES = {"best": "*fp32", "choice": "*i32", "mass": "*fp32", "confidence": "*fp32", "time": "*i64"}
TYPES = INTEGERS | dict.fromkeys(COUNTERS, "*i64") | SCORES
OF_MASKS = {"masks": "*fp32", "kinds": "*i64"}
OF_SEARCH = {"COUNT": 1025, "OUTPUTS": 1030, "JOINT": 640, "WIDTH": 64}
OF_GATES = dict.fromkeys(("bias", "cell", "label_gates"), "*fp32")
OF_PREDICTOR = {"SLICE": 64, "WIDTH": 640}
ATTENTION = LAUNCH if CAPABILITY // 10 in (9, 10) else LAUNCH_FROM_REGISTERS
OF_ATTENTION = {"num_stages": ATTENTION.stages, "num_warps": ATTENTION.warps}
OF_CONVOLUTION = {"WIDTH": 1024, "BIASED": True, "SWISH": True, "CHANNELS": 256}
OF_SUBSAMPLING = {"WIDTH": 256, "FRAMES": 16, "BANDS": 4, "CHANNELS": 256}
OF_EXPANSION = {"CHANNELS": 1024, "BIASED": True, "SLICE": 64, "GROUP": 8}
OF_LATTICE = dict.fromkeys(("steps", "frames"), "*i64") | dict.fromkeys(("diagonals", "width"), "i32")
OF_LATTICE |= dict.fromkeys(("forwards", "sums"), "*fp64") | {"weights": "*fp32"}
OF_SCORES = dict.fromkeys(("mass", "weights", "shares"), "*fp32") | {"next_label": "*i64", "nodes": "i32"}
OF_SCORES |= dict.fromkeys(("sigma", "emphasis"), "fp32")
OF_FOLD = dict.fromkeys(("places", "firsts", "steps", "counts"), "*i64") | {"total": "*fp32"}
OF_TDT = {"OUTPUTS": 1030, "BLANK": 1024, "DURATIONS": 5, "RESTING": 0, "BLOCK": 2048}
KERNELS = [
    (_walk, {}, {"BLANK": 1024, "WINDOW": 8, "LABEL_TILES": 17, "TILES": 32, "LABELS": 64, "DURATIONS": 5}),
    (_convolve, {}, {"KERNEL": 9, "LEFT": 4, "FRAMES": 16} | OF_CONVOLUTION),
    (_convolve, {}, {"KERNEL": 9, "LEFT": 4, "FRAMES": 8} | OF_CONVOLUTION),
    (_convolve, {}, {"KERNEL": 31, "LEFT": 15, "FRAMES": 16} | OF_CONVOLUTION),
    (_halve_features, {}, {"PITCH": 134, "BANDS_IN": 64, "BANDS_OUT": 32} | OF_SUBSAMPLING),
    (_halve_images, {}, {"BANDS_IN": 32, "BANDS_OUT": 16} | OF_SUBSAMPLING),
    (
        _attend,
        {"reach": "i32", "table_head": "i32", "table_row": "i32", "scale": "fp32"},
        {"HEADS": 8, "SHARE": 128, "CHANNELS": 128, "REREADS": ATTENTION.rereads, "LEFT": -1, "RIGHT": -1,
         "CHUNK": 1},
    ),
    (_add_and_norm, {"share": "fp32", "epsilon": "fp32"}, {"WIDTH": 1024, "BLOCK": 1024}),
    (_sum_forwards, OF_LATTICE, {"ARCS": 9, "BLANKS": 4, "BLOCK": 256}),
    (_sum_backwards, OF_LATTICE, {"ARCS": 9, "BLANKS": 4, "BLOCK": 256}),
    (_weigh, OF_SCORES, OF_TDT),
    (_pull, OF_SCORES, OF_TDT),
    (_fold, OF_FOLD, {"WIDTH": 640, "NODES": 16, "UNITS": 128}),
]  # fmt: skip


# Small tiles, and in half precision large ones.
OF_TILES = {}
for tile in (SCORES_OF_FEW, SCORES_OF_MANY, MASKED_SCORES_OF_MANY):
    constants = {"WINDOW": 4 if tile == MASKED_SCORES_OF_MANY else 8, "ROWS": tile.rows, "LABELS": tile.columns}
    if tile != MASKED_SCORES_OF_MANY:
        unmasked = {"MASKED": False} | dict.fromkeys(OF_MASKS)
        KERNELS.append((_score_tile, dict.fromkeys(OF_MASKS, "constexpr"), OF_SEARCH | constants | unmasked))
    if tile != SCORES_OF_MANY:
        KERNELS.append((_score_tile, OF_MASKS, OF_SEARCH | constants | {"MASKED": True}))
    OF_TILES[_score_tile.__name__, tile.rows] = tile
for tile in (UNITS_OF_FEW, UNITS_OF_MANY):
    constants = OF_PREDICTOR | {"ROWS": tile.rows, "UNITS": tile.columns}
    KERNELS.append((_lstm_layer, OF_GATES, {"FIRST": True} | constants))
    KERNELS.append((_lstm_layer, OF_GATES, {"FIRST": False} | constants))
    KERNELS.append((_project, {}, {"JOINT": 640} | constants))
    OF_TILES |= dict.fromkeys(((_lstm_layer.__name__, tile.rows), (_project.__name__, tile.rows)), tile)
# Of a decoder of width 1024, a product of each kind.
for tile in (FEW, MANY):
    constants = {"ROWS": tile.rows, "COLUMNS": tile.columns, "SLICE": SLICE}
    for width, normed, activation, added in ((1024, True, 2, False), (4096, False, 0, True)):
        kind = {"WIDTH": width, "NORMED": normed, "ACTIVATION": activation, "ADDED": added}
        KERNELS.append((_multiply, {"epsilon": "fp32"}, kind | constants))
    OF_TILES[_multiply.__name__, tile.rows] = tile
OF_TOKENS = {"bounds": "*i64", "scale": "fp32"} | dict.fromkeys(("row_stride", "head_stride", "time_stride"), "i32")
for own in (True, False):
    constants = {"HEADS": 8, "SHARE": 128, "CHANNELS": 128, "OWN": own, "KEYS": KEYS}
    KERNELS.append((_attend_from_token, OF_TOKENS, constants))


def registers(assembly):
    """How many registers a thread has, and what it spills, by the log of the assembler."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as source:
        source.write(assembly)
        source.flush()
        log = subprocess.run([*ASSEMBLER, source.name], capture_output=True, text=True, check=True).stderr
    (used,) = re.findall(r"Used (\d+) registers", log)
    return {"registers": int(used), "spilled": sum(map(int, re.findall(r"(\d+) bytes spill stores", log)))}


for tile in TILES:
    tiles = {"FRAMES": tile.rows, "COLUMNS": tile.columns}
    blocks = {"frames": (tile.rows, 64), "weight": (tile.columns, 64), "expanded": (tile.rows, tile.columns)}
    descriptors = {argument: f"tensordesc<{HALF}[{rows},{columns}]>" for argument, (rows, columns) in blocks.items()}
    KERNELS.append((_expand, {"blocks": "i32"} | descriptors, OF_EXPANSION | tiles))

for dtype in (HALF, "fp32"):
    for kernel, types, constants in KERNELS:
        if ONLY and kernel.__name__ not in ONLY:
            continue
        if kernel is _expand and dtype == "fp32":
            continue
        tile = OF_TILES.get((kernel.__name__, constants.get("ROWS")))
        if tile and tile.rows > 16 and dtype == "fp32":
            continue
        if kernel is _attend:
            constants |= {HALF: {"TILE": ATTENTION.tile, "KEYS": ATTENTION.keys}, "fp32": {"TILE": 16, "KEYS": 16}}[
                dtype
            ]
        known = TYPES | types | dict.fromkeys(constants, "constexpr")
        signature = {argument: known.get(argument, f"*{dtype}") for argument in kernel.arg_names}
        places = {(kernel.arg_names.index(argument),): value for argument, value in constants.items()}
        options = {"num_warps": 1} if kernel is _walk else OF_ATTENTION if kernel is _attend else {}
        if kernel in (_sum_forwards, _sum_backwards):
            options = {"num_warps": WARPS}
        if kernel is _expand:
            (tile,) = [tile for tile in TILES if tile.columns == constants["COLUMNS"]]
        if tile:
            options = {"num_warps": tile.warps, "num_stages": tile.stages}
        # What torch allocates is aligned, and strides are multiples of a head's width: loads are wide then.
        aligned = {
            (place,): [["tt.divisibility", 16]]
            for place, argument in enumerate(kernel.arg_names)
            if str(signature[argument]).startswith("*")
            or argument in ("table_head", "table_row")
            or argument.endswith("_stride")
        }
        source = ASTSource(kernel, signature, places, aligned)
        compiled = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options)
        assembly = compiled.asm["ptx"]
        result = {"kernel": kernel.__name__, "dtype": dtype, "shared": compiled.metadata.shared}
        result |= registers(assembly) | {"mma": assembly.count("mma"), "copies": assembly.count("cp.async.c")}
        print(json.dumps(result))  # noqa: T201  # what it is for
