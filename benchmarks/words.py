"""Errors of word times, and the calibration of word confidence: clips with transcripts, one model.

Times are compared with the audio: at silences of a quarter of a second or more, and at the ends of a clip, the word
before has ended and the word after begins. Quiet is nearer to a clip's noise than to its speech; clips with noise too
near to speech have no silences. Confidence is compared with correctness: of words with a confidence of 0.8, eight of
ten should be right (expected calibration error, Guo et al., 2017, over 15 bins; and AUC, the probability that a right
word has a higher confidence than a wrong one).
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from audio.decode import decode
from audio.limits import AudioLimits
from audio.samples import Samples
from benchmarks.environment import describe
from cli.references import Reference, read_references
from models import Transcriber, Transcript, Word, load_model

Floats = NDArray[np.float64]

_STEP_SECONDS = 0.01
_QUIET_SECONDS = 0.25
_LEAST_DECIBELS = 35.0  # least distance of noise and speech of a clip
_QUIET_SHARE = 0.3  # threshold, as a share of the way from noise to speech
_FAR_SECONDS = 0.6  # a word further away from a silence's border is another one
_BINS = 15
MEASURES: dict[str, Callable[[Sequence[float]], float]] = {
    "lowest": min,
    "mean": lambda tokens: sum(tokens) / len(tokens),
    "product": math.prod,
}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "clips", type=Path, metavar="MANIFEST", help="clips with transcripts, as `steno eval` takes them"
    )
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--decoder", help="default: the model's first")
    parser.add_argument("--language-model", help="for a CTC decoder; none: greedy (default: the bundled model's own)")
    parser.add_argument(
        "--aligned", action="store_true", help="find the words of the transcripts, as an aligner of another model does"
    )
    parser.add_argument("--split")
    parser.add_argument("--sources", nargs="+", help="only clips of these")
    args = parser.parse_args()
    chosen = [
        clip
        for clip in read_references(args.clips)
        if args.split in (None, clip.split) and (args.sources is None or clip.source in args.sources)
    ]
    if not chosen:
        parser.error(f"no clip of {args.clips} has this split and one of these sources")
    model = load_model(args.model, language_model=args.language_model)
    samples = [_read(clip.audio, model.sample_rate) for clip in chosen]
    if args.aligned:
        transcripts = [aligned(model, clip.text, pcm) for clip, pcm in zip(chosen, samples, strict=True)]
    else:
        transcripts = model.transcribe(samples, decoder=args.decoder, batch_seconds=60.0)

    borders = [
        found
        for pcm, one in zip(samples, transcripts, strict=True)
        for found in at_borders(pcm, model.sample_rate, one)
    ]
    about = {"model": Path(args.model).stem, "clips": len(chosen)}
    rows: list[dict[str, object]] = []
    for name in ("start", "end"):
        errors = np.array([error for kind, error in borders if kind == name])
        rows.append({"time": name, "words": len(errors), **_times(errors)})
    if not args.aligned:
        rows += _confidence(chosen, transcripts)
    for row in rows:
        print(
            "  ".join(
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )
    if not args.aligned:
        _print_reliability(chosen, transcripts)
    print(json.dumps({"benchmark": "words", **about, **describe(torch.device("cpu")), "rows": rows}))


def aligned(model: Transcriber, text: str, samples: Samples) -> Transcript:
    """Return a transcript whose words have the times at which a model's CTC decoder finds them."""
    words, (waveforms, lengths) = text.split(), model.model.batch([samples])
    (spans,) = model.model.align_batch(waveforms, lengths, [words])
    found = [
        Word(word, start, end, 1.0, (index, index + 1))
        for index, (word, (start, end)) in enumerate(zip(words, spans, strict=True))
    ]
    return Transcript(text, [0] * len(words), [1.0] * len(words), found)


def _confidence(clips: Sequence[Reference], transcripts: Sequence[Transcript]) -> list[dict[str, object]]:
    """Return how much each measure of confidence means."""
    right = _right(clips, transcripts)
    rows: list[dict[str, object]] = []
    for name, measure in MEASURES.items():
        confidence = [
            measure(one.token_confidence[slice(*word.token_span)]) for one in transcripts for word in one.words
        ]
        error, auc = calibration(confidence, right)
        rows.append({"confidence": name, "words": len(right), "ece": error, "auc": auc})
    return rows


def _print_reliability(clips: Sequence[Reference], transcripts: Sequence[Transcript]) -> None:
    lowest = [min(one.token_confidence[slice(*word.token_span)]) for one in transcripts for word in one.words]
    for low, mean, share, count in reliability(lowest, _right(clips, transcripts), bins=5):
        print(f"lowest from {low:.1f}: {count} words, mean {mean:.2f}, right {share:.2f}")


def _right(clips: Sequence[Reference], transcripts: Sequence[Transcript]) -> list[bool]:
    return [is_right for clip, one in zip(clips, transcripts, strict=True) for is_right in right_words(clip.text, one)]


def at_borders(samples: Samples, rate: int, transcript: Transcript) -> Iterator[tuple[str, float]]:
    """Yield the errors of word times at silences in seconds, with `start` or `end`; negative is too early."""
    middles = [((word.start or 0.0) + (word.end or 0.0)) / 2 for word in transcript.words]
    for begin, end in silences(samples, rate):
        middle = (begin + end) / 2
        before = sum(place < middle for place in middles)
        if begin > 0 and before:
            error = (transcript.words[before - 1].end or 0.0) - begin
            if abs(error) < _FAR_SECONDS:
                yield "end", error
        if end < len(samples) / rate - _STEP_SECONDS and before < len(middles):
            error = (transcript.words[before].start or 0.0) - end
            if abs(error) < _FAR_SECONDS:
                yield "start", error


def silences(samples: Samples, rate: int) -> list[tuple[float, float]]:
    """Return the silences of a clip in seconds; empty if its noise is too near to its speech."""
    step = round(_STEP_SECONDS * rate)
    if len(samples) < 4 * step:
        return []
    power = np.square(samples[: len(samples) // step * step].astype(np.float64)).reshape(-1, step).mean(axis=1)
    level = 10 * np.log10(np.convolve(power, np.ones(3) / 3, "same") + 1e-10)
    noise, speech = np.percentile(level, (5, 95))
    if speech - noise < _LEAST_DECIBELS:
        return []
    is_quiet = np.concatenate(([False], level < noise + _QUIET_SHARE * (speech - noise), [False]))
    borders = np.flatnonzero(np.diff(is_quiet)).reshape(-1, 2) * _STEP_SECONDS
    length = len(level) * _STEP_SECONDS
    return [
        (float(begin), float(end))
        for begin, end in borders
        if end - begin >= _QUIET_SECONDS or begin == 0 or end >= length - _STEP_SECONDS / 2
    ]


def right_words(reference: str, transcript: Transcript) -> list[bool]:
    """Return for each word whether it is right by the reference."""
    spoken, written = reference.lower().split(), [word.text.lower() for word in transcript.words]
    is_right = [False] * len(written)
    for match in SequenceMatcher(None, spoken, written, autojunk=False).get_matching_blocks():
        is_right[match.b : match.b + match.size] = [True] * match.size
    return is_right


def calibration(confidence: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """Return the expected calibration error, and the AUC."""
    error = sum(abs(mean - share) * count for _, mean, share, count in reliability(confidence, right, _BINS))
    is_right = np.array(right)
    # Equal confidences share their mean rank, so that neither of two comes first.
    _, places, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    order = (np.cumsum(counts) - (counts - 1) / 2)[places]
    ones, zeros = int(is_right.sum()), int((~is_right).sum())
    auc = (order[is_right].sum() - ones * (ones + 1) / 2) / (ones * zeros) if ones and zeros else math.nan
    return error / len(right), float(auc)


def reliability(confidence: Sequence[float], right: Sequence[bool], bins: int) -> list[tuple[float, float, float, int]]:
    """Return for each bin with words its lower edge, mean confidence, share of right words, and number of words."""
    values, is_right = np.array(confidence), np.array(right)
    places = np.minimum((values * bins).astype(int), bins - 1)
    return [
        (place / bins, float(values[here].mean()), float(is_right[here].mean()), int(here.sum()))
        for place in range(bins)
        if (here := places == place).any()
    ]


def _times(errors: Floats) -> dict[str, float]:
    if not len(errors):  # no word is at a silence
        return {}
    median, late = np.percentile(np.abs(errors), (50, 95))
    return {"bias": float(np.median(errors)), "median": float(median), "p95": float(late)}


def _read(path: Path, rate: int) -> Samples:
    with path.open("rb") as file:
        return decode(file, rate=rate, limits=AudioLimits()).samples


if __name__ == "__main__":
    main()
