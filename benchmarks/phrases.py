"""What phrases do to words and to speed: clips with transcripts, one model.

    python -m benchmarks phrases MANIFEST --split dev --model bundled

Each clip names its rarest words, as a caller would who knows what the recording is about, among distractors: rare words
of other clips. Rare is what the rest of the manifest has seldom. Recall is the share of these words that the transcript
has. Speed is audio over processor time, which other load on the machine hardly changes. It is measured in turns: with
lists of several lengths, the same for all clips, which is grown into a tree once; and with a list of its own for each
clip, which is grown anew.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from audio.decode import decode
from audio.limits import AudioLimits
from audio.samples import Samples
from benchmarks.environment import describe
from cli.references import Reference, read_references
from cli.scoring import Score, Scorer
from models import Transcriber, load_model

_SHORTEST = 4  # letters of a word that is named
_SEEN = 2  # times that a distractor is in the manifest, at most


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip, the rare words that it names, and its distractors."""

    reference: Reference
    samples: Samples
    rare: Sequence[str]
    distractors: Sequence[str]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path, help="clips with transcripts, as `steno eval` takes them")
    parser.add_argument("--split", default="dev", help="its clips are transcribed; the others say what is rare")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--language-model", help="none: greedy search")
    parser.add_argument("--decoder", help="default: the model's first")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--words", type=int, default=3, help="rare words of a clip")
    parser.add_argument("--distractors", type=int, default=100)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 100, 1000], help="of the lists for the speed")
    parser.add_argument("--own", type=int, default=100, help="length of lists that each clip has for itself")
    parser.add_argument("--timed", type=int, help="clips whose speed is measured; default: all")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()

    model = load_model(args.model, dtype=args.dtype, language_model=args.language_model)
    references = read_references(args.manifest)
    seen = Counter(word for one in references if one.split != args.split for word in one.text.split())
    chosen = [one for one in references if one.split == args.split]
    clips = _clips(chosen, seen, model.sample_rate, args.words, args.distractors)
    words = _words(model, clips, args.decoder)
    print(f"{'phrases':24} {'WER %':>6} {'recall %':>9}")
    for name, (wer, recall) in words.items():
        print(f"{name:24} {100 * wer:6.2f} {100 * recall:9.1f}")
    speed = _speed(model, clips[: args.timed], sorted(seen), args)
    print(f"{'phrases':24} {'seconds':>7} {'to none':>8}")
    for name, (rtfx, ratio) in speed.items():
        print(f"{name:24} {rtfx:7.1f} {ratio:8.3f}")
    setting = {"model": args.model, "decoder": args.decoder or model.decoders[0], "dtype": args.dtype}
    print(json.dumps({"benchmark": "phrases", **describe(model.device), **setting, "words": words, "speed": speed}))


def _clips(chosen: Sequence[Reference], seen: Mapping[str, int], rate: int, count: int, distractors: int) -> list[Clip]:
    def rare(text: str) -> list[str]:
        words = {word for word in text.split() if len(word) >= _SHORTEST}
        return sorted(words, key=lambda word: (seen.get(word, 0), -len(word), word))[:count]

    named = [rare(one.text) for one in chosen]
    pool = {word for words in named for word in words}
    pool |= {word for word, times in seen.items() if times <= _SEEN and len(word) >= _SHORTEST}
    drawn = np.random.default_rng(0)
    clips = []
    for one, words in zip(chosen, named, strict=True):
        with one.audio.open("rb") as file:
            samples = decode(file, rate=rate, limits=AudioLimits()).samples
        others = sorted(pool.difference(one.text.split()))
        clips.append(Clip(one, samples, words, drawn.choice(others, distractors, replace=False).tolist()))
    return clips


def _words(model: Transcriber, clips: Sequence[Clip], decoder: str | None) -> dict[str, tuple[float, float]]:
    """Return word error rate and recall of the rare words, by what the clips name."""
    scorer = Scorer()
    given = {
        "none": ["" for _ in clips],
        "rare and distractors": ["\n".join([*clip.rare, *clip.distractors]) for clip in clips],
        "rare alone": ["\n".join(clip.rare) for clip in clips],
        "distractors alone": ["\n".join(clip.distractors) for clip in clips],
    }
    found = {}
    for name, lists in given.items():
        texts = [one.text for one in model.transcribe([clip.samples for clip in clips], decoder=decoder, phrases=lists)]
        pairs = list(zip(clips, texts, strict=True))
        total = sum((scorer.score(clip.reference.text, text, 0.0) for clip, text in pairs), Score())
        said = [word in text.lower().split() for clip, text in pairs for word in clip.rare]
        found[name] = (total.wer or 0.0, sum(said) / len(said))
    return found


def _speed(
    model: Transcriber, clips: Sequence[Clip], words: Sequence[str], args: argparse.Namespace
) -> dict[str, tuple[float, float]]:
    """Return seconds of audio per second of processor time, and the median of its ratios to that without phrases."""
    pcm = [clip.samples for clip in clips]
    drawn = np.random.default_rng(1)
    same = {length: "\n".join(drawn.choice(words, length, replace=False)) for length in args.lengths}

    def with_own() -> object:
        lists = ["\n".join(drawn.choice(words, args.own, replace=False)) for _ in clips]
        return model.transcribe(pcm, decoder=args.decoder, phrases=lists)

    calls: dict[str, Callable[[], object]] = {"none": lambda: model.transcribe(pcm, decoder=args.decoder)}
    for length, lines in same.items():
        calls[f"{length}, for all"] = lambda lines=lines: model.transcribe(pcm, decoder=args.decoder, phrases=lines)  # type: ignore[misc]
    calls[f"{args.own}, of its own"] = with_own
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(1 + args.turns):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if turn:  # the first warms up
                times[name].append(time.process_time() - began)
    seconds = sum(len(samples) for samples in pcm) / model.sample_rate
    return {
        name: (
            seconds / median(taken),
            median(none / one for none, one in zip(times["none"], taken, strict=True)),
        )
        for name, taken in times.items()
    }


if __name__ == "__main__":
    main()
