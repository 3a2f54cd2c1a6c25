"""What a batch takes of a GPU, calculated from the model's shape and the GPU's published peaks (Williams et al., 2009).

A stage takes as long as the slowest of three: its operations at the peak of its dtype, its bytes at the memory's peak,
its kernels one after the other. Features are float32 in any dtype; with tf32, so are searches and attention, which our
kernels compute. The second estimate takes shares of the peaks that large products and copies reach on GPUs like these.
Texts are written beside the device and cost it nothing.
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks.random_model import ENCODERS, LABELS, published_config
from models.config import ConformerConfig
from models.features import FRAMES_OF_BLOCK

# Bytes of a value: those that stages are calculated with, and those of each dtype.
_VALUE = 2
VALUES = {"bfloat16": 2, "float16": 2, "tf32": 4, "float32": 4}
# Stages whose kernels compute float32 exactly also with tf32.
_EXACT = ("attention", "search: scores", "search: predictor", "writing")
_SAMPLE_RATE, _FEATURES_A_SECOND = 16_000, 100
# From one kernel to the next that waits for it, in a graph; without one, a host launches about as fast.
_SECONDS_A_KERNEL = 2.5e-6
# Of a large product and of a long copy: 795 of 989 TFLOP/s and 3.0 of 3.35 TB/s were published for an H100; products of
# an encoder are smaller.
_SHARE_OF_OPERATIONS, _SHARE_OF_BYTES = 0.7, 0.88
_KERNELS_OF_FEATURES, _KERNELS_OF_BLOCK = 25, 7
_LABELS_A_SECOND = 4
# Steps of a look-ahead for a second of audio in a batch of 128 clips of 10 s (simulated, four labels a second).
_STEPS_A_SECOND = {"rnnt": 6.0, "tdt": 4.6}
_WINDOW, _ROWS_OF_A_TILE = 4, 128
_DECODER_LAYERS, _KERNELS_OF_A_DECODER_LAYER, _KERNELS_OF_A_TOKEN = 4, 8, 25
_GOAL = 25_000


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's published peaks.

    Attributes:
        operations: a second by dtype, on tensor cores where they have it, dense; a multiplication and an addition are
            two. A dtype without units for it has none.
        bytes: a second from and to its memory.
    """

    operations: dict[str, float]
    bytes: float


def _peaks(half: float, single: float, tf32: float | None = None) -> dict[str, float]:
    """Return operations a second in float16 (and bfloat16, where there is TF32), float32 and TF32."""
    since_ampere = {} if tf32 is None else {"bfloat16": half, "tf32": tf32}
    return {"float16": half, "float32": single} | since_ampere


# NVIDIA's data sheets: SXM modules with 80 GB of the A100 and H100.
GPUS = {
    "h200": Gpu(_peaks(989.5e12, 67e12, 494.7e12), 4.8e12),
    "h100": Gpu(_peaks(989.5e12, 67e12, 494.7e12), 3.35e12),
    "a100": Gpu(_peaks(312e12, 19.5e12, 156e12), 2.039e12),
    "l4": Gpu(_peaks(121e12, 30.3e12, 60e12), 0.3e12),
    "v100": Gpu(_peaks(125e12, 15.7e12), 0.9e12),
    "t4": Gpu(_peaks(65e12, 8.1e12), 0.32e12),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the work on a batch.

    Attributes:
        name: of the part.
        operations: multiplications and additions.
        bytes: read from and written to the GPU's memory, with values of two bytes.
        kernels: launched one after the other.
        is_exact: whether it is float32 in any dtype, and ``bytes`` are those of float32.
    """

    name: str
    operations: float
    bytes: float
    kernels: float
    is_exact: bool = False

    def seconds(self, gpu: Gpu, operations: float = 1.0, moved: float = 1.0, dtype: str = "float16") -> float:
        """Return what it takes in a dtype at shares of the peaks of operations and bytes."""
        is_exact = self.is_exact or (dtype == "tf32" and self.name in _EXACT)
        return max(
            self.operations / (operations * gpu.operations["float32" if is_exact else dtype]),
            self.moved(dtype) / (moved * gpu.bytes),
            self.kernels * _SECONDS_A_KERNEL,
        )

    def moved(self, dtype: str) -> float:
        """Return the bytes that it moves in a dtype."""
        return self.bytes if self.is_exact else self.bytes * VALUES[dtype] / _VALUE


def main() -> None:
    """Parse, calculate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(ENCODERS), default="0.6b")
    parser.add_argument("--device", choices=sorted(GPUS), default="h200")
    parser.add_argument("--dtype", choices=sorted(VALUES), help="default: bfloat16, or float16 before Ampere")
    parser.add_argument("--decoder", choices=("ctc", "rnnt", "tdt", "attention"), nargs="+", default=["ctc", "tdt"])
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()

    gpu = GPUS[args.device]
    dtype = args.dtype or ("bfloat16" if "bfloat16" in gpu.operations else "float16")
    if dtype not in gpu.operations:
        parser.error(f"{args.device} has no units for {dtype}")
    encoder = list(encoder_stages(ENCODERS[args.shape], args.batch, args.seconds))
    audio, rows = args.batch * args.seconds, []
    for decoder in args.decoder:
        stages = [*encoder, *decoder_stages(decoder, args.shape, args.batch, args.seconds)]
        total, likely = _seconds(stages, gpu, dtype)
        print(f"{args.shape}, {decoder}, {args.batch} x {args.seconds:g} s, {args.device}, {dtype}")
        print(f"{'stage':24} {'TFLOP':>8} {'GB':>8} {'kernels':>8} {'ms at peak':>11} {'likely ms':>10} {'share':>7}")
        for stage in stages:
            least, usual = _seconds([stage], gpu, dtype)
            print(
                f"{stage.name:24} {stage.operations / 1e12:8.3f} {stage.moved(dtype) / 1e9:8.3f} {stage.kernels:8.0f}"
                f" {1000 * least:11.2f} {1000 * usual:10.2f} {100 * usual / likely:6.1f} %"
            )
            rows.append(asdict(stage) | {"decoder": decoder, "at_peak": least, "likely": usual})
        print(f"{'all':51} {1000 * total:11.2f} {1000 * likely:10.2f}")
        print(f"{'RTFx':51} {audio / total:11.0f} {audio / likely:10.0f}")
        print(f"{_GOAL:,} RTFx leave the batch {1000 * audio / _GOAL:.1f} ms\n")
    about = {"shape": args.shape, "device": args.device, "dtype": dtype, "batch": args.batch, "seconds": args.seconds}
    print(json.dumps({"benchmark": "roofline"} | about | {"goal": _GOAL, "rows": rows}))


def _seconds(stages: list[Stage], gpu: Gpu, dtype: str) -> tuple[float, float]:
    """Return what stages take at the peaks, and at the shares of them that are usual."""
    usual = _SHARE_OF_OPERATIONS, _SHARE_OF_BYTES
    return (
        sum(stage.seconds(gpu, dtype=dtype) for stage in stages),
        sum(stage.seconds(gpu, *usual, dtype) for stage in stages),
    )


def encoder_stages(config: ConformerConfig, batch: int, seconds: float) -> Iterator[Stage]:
    """Yield the stages from samples to the encoder's frames."""
    features = batch * seconds * _FEATURES_A_SECOND
    time = seconds * _FEATURES_A_SECOND / config.subsampling_factor
    frames, width, inner, layers = batch * time, config.width, config.feed_forward_width, config.layers
    bins = 257
    yield Stage(
        "features",
        features * (2 * bins * config.mels + 5 * 512 * 9),
        # Eight times the samples, twelve times the bands; spectra stay in the cache, in blocks.
        (8 * batch * seconds * _SAMPLE_RATE + 12 * features * config.mels) * 4,
        _KERNELS_OF_FEATURES + _KERNELS_OF_BLOCK * math.ceil(features / FRAMES_OF_BLOCK),
        is_exact=True,
    )
    yield _subsampling(config, features, frames)
    for name, columns_in, columns_out, times in (
        ("expansion", width, inner, 2),
        ("contraction", inner, width, 2),
        ("query, key, value", width, 3 * width, 1),
        ("attention's output", width, width, 1),
        ("gated pointwise", width, 2 * width, 1),
        ("pointwise", width, width, 1),
    ):
        yield _product(name, frames, columns_in, columns_out, layers * times)
    # The library's expansion leaves Swish to a kernel of its own.
    yield Stage("Swish", 0, 2 * layers * 2 * frames * inner * _VALUE, 2 * layers)
    # Content, distances and values: a tile of keys needs one new block of distances.
    yield Stage("attention", layers * 6 * frames * time * width, layers * 4 * frames * width * _VALUE, layers)
    convolved = layers * frames * width
    yield Stage("convolution", 0, 3 * convolved * _VALUE, layers)
    # Each of four modules adds and norms; the last norm of a layer is another.
    yield Stage("sums and norms", 0, (4 * 4 + 2) * layers * frames * width * _VALUE, 5 * layers)


def decoder_stages(decoder: str, shape: str, batch: int, seconds: float) -> Iterator[Stage]:
    """Yield the stages from the encoder's frames to tokens."""
    config, width = published_config(shape, "tdt" if decoder == "tdt" else "rnnt"), ENCODERS[shape].width
    frames = batch * seconds * _FEATURES_A_SECOND / ENCODERS[shape].subsampling_factor
    if decoder == "ctc":
        yield _product("CTC's scores", frames, width, LABELS + 1, 1)
        yield Stage("CTC's choice", 0, 3 * frames * (LABELS + 1) * 4, 8, is_exact=True)
        return
    if decoder == "attention":
        yield from _attention_decoder(width, batch, frames, round(seconds * _LABELS_A_SECOND))
        return
    transducer = config.transducer
    assert transducer is not None
    joint, state, outputs = transducer.joint_width, transducer.predictor_width, LABELS + 1 + len(transducer.durations)
    yield _product("joint's frames", frames, width, joint, 1)
    steps, scored = _STEPS_A_SECOND[decoder] * seconds, batch * _WINDOW
    # Each tile of rows reads the weights again: from the second cache, but counted as if from memory.
    read = outputs * joint * max(1, scored / _ROWS_OF_A_TILE) + scored * joint
    lstm = transducer.predictor_layers * 8 * state * state
    yield Stage("search: scores", steps * 2 * scored * joint * outputs, steps * read * _VALUE, 2 * steps)
    yield Stage(
        "search: predictor",
        steps * 2 * batch * (lstm + state * joint),
        steps * (lstm + state * joint) * _VALUE,
        (transducer.predictor_layers + 1) * steps,
    )


def _attention_decoder(width: int, batch: int, frames: float, tokens: int) -> Iterator[Stage]:
    """Yield the stages of a decoder of four layers, as Canary-1B-Flash has it."""
    vocabulary = 5248
    yield _product("keys and values", frames, width, 2 * width, _DECODER_LAYERS)
    weights = _DECODER_LAYERS * (4 + 2 + 8) * width * width + vocabulary * width
    remembered = _DECODER_LAYERS * 2 * width * (frames + batch * tokens / 2)
    yield Stage(
        "writing",
        tokens * 2 * (batch * weights + remembered),
        tokens * (weights + remembered) * _VALUE,
        tokens * (_DECODER_LAYERS * _KERNELS_OF_A_DECODER_LAYER + _KERNELS_OF_A_TOKEN),
    )


def _subsampling(config: ConformerConfig, features: float, frames: float) -> Stage:
    """Return the stage of three convolutions with stride two, the last two of them depthwise and pointwise."""
    channels = config.subsampling_channels
    quarter, eighth = features / 4 * config.mels / 4, features / 8 * config.mels / 8
    operations = features / 2 * config.mels / 2 * channels * 2 * 9
    operations += (quarter + eighth) * channels * 2 * (9 + channels)
    operations += 2 * frames * config.mels // 8 * channels * config.width
    # Our kernels write the images after each depthwise convolution; products write and read the others.
    moved = features * config.mels + (3 * quarter + 4 * eighth) * channels + frames * config.width
    return Stage("subsampling", operations, moved * _VALUE, 8)


def _product(name: str, rows: float, columns_in: int, columns_out: int, times: int) -> Stage:
    moved = rows * (columns_in + columns_out) + columns_in * columns_out
    return Stage(name, times * 2 * rows * columns_in * columns_out, times * moved * _VALUE, times)


if __name__ == "__main__":
    main()
