"""Processor time of detecting speech, with our rewritten network and with silero-vad's original.

    python -m benchmarks speech FILE

Both take turns on the same recording, with the code by which the front gets `no_speech_prob`. It needs the package
silero-vad.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime
import soundfile
import torch

from audio.recording import Recording
from audio.segment.cuts import speech
from audio.segment.silero.build import original
from audio.segment.voice_activity import RATE, SpeechDetector
from benchmarks.environment import describe


def detectors() -> dict[str, SpeechDetector]:
    """Return the detector, and one with the original network."""
    ours, theirs = SpeechDetector(), SpeechDetector()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    theirs.session = onnxruntime.InferenceSession(
        original().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return {"original": theirs, "rewritten": ours}


def measure(each: dict[str, SpeechDetector], samples: np.ndarray, runs: int) -> tuple[dict[str, list[float]], float]:
    """Return the processor seconds of each run, and the largest difference of a probability.

    Args:
        each: the detectors by name.
        samples: (samples,), float32, 16 kHz.
        runs: number of runs of each.
    """
    seconds: dict[str, list[float]] = {}
    found = {}
    with Recording(RATE, len(samples) / RATE) as recording:
        recording.append(np.ascontiguousarray(samples).view(np.uint8).data)
        for run in range(runs + 1):  # the first one warms up
            for name, detector in each.items() if run % 2 else reversed(each.items()):
                began = time.process_time()
                found[name] = speech(recording, detector)
                if run:
                    seconds.setdefault(name, []).append(time.process_time() - began)
    return seconds, float(np.abs(found["original"] - found["rewritten"]).max())


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[8.0, 3600.0], help="of the recording, cut or repeated"
    )
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()

    samples, rate = soundfile.read(args.recording, dtype="float32", always_2d=True)
    if rate != RATE:
        raise SystemExit(f"{args.recording}: {rate} Hz; give one of {RATE} Hz")
    each, rows = detectors(), []
    print(f"{'seconds':>8} {'original, ms':>13} {'rewritten, ms':>14} {'ratio':>6} {'range':>14} {'difference':>11}")
    for length in args.seconds:
        seconds, difference = measure(each, np.resize(samples[:, 0], round(length * RATE)), args.runs)
        ratios = [ours / theirs for ours, theirs in zip(seconds["rewritten"], seconds["original"], strict=True)]
        before, after = (1000 * statistics.median(seconds[name]) for name in ("original", "rewritten"))
        ratio, spread = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{length:8g} {before:13.1f} {after:14.1f} {ratio:6.2f} {spread:>14} {difference:11.1e}")
        rows.append({"seconds": length, "original_ms": before, "ms": after, "ratio": ratio, "difference": difference})
    print(json.dumps({"benchmark": "speech", **describe(torch.device("cpu")), "runs": args.runs, "rows": rows}))


if __name__ == "__main__":
    main()
