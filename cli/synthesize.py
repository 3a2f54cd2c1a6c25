"""`steno synthesize`: speech to train on, made from sentences."""

import argparse
import hashlib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cli.model_options import Subparsers
from cli.numbers import count, positive, share, whole
from models.device.resources import processors

if TYPE_CHECKING:
    from training.synthesis.collection import Collection
    from training.synthesis.readings import Readings
    from training.synthesis.synthesis import Tally


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "synthesize",
        help="make speech to train on",
        description="Have speech synthesizers say sentences (docs/training.md). A run that was stopped goes on where "
        "it was, and more clips can be added: run it again.",
    )
    parser.add_argument("text", metavar="TEXT", help="file of sentences, one a line; may be compressed (.xz)")
    parser.add_argument("--out", required=True, metavar="DIR", help="where manifest.jsonl and the clips are")
    enough = parser.add_mutually_exclusive_group(required=True)
    enough.add_argument("--clips", type=count, default=math.inf, metavar="N", help="until DIR has N clips")
    enough.add_argument("--hours", type=positive, default=math.inf, metavar="H", help="until DIR has H hours of speech")
    parser.add_argument(
        "--seed", type=whole(0), default=0, metavar="S", help="seed of which voice says what (default: %(default)s)"
    )
    parser.add_argument("--voices", type=_patterns, metavar="LIST", help="these only: flite/slt,festival/*")
    parser.add_argument("--without", type=_patterns, default=[], metavar="LIST", help="all but these: *slt*")
    parser.add_argument(
        "--fragments",
        type=share,
        default=0.0,
        metavar="P",
        help="share of the clips that have only some words of a sentence, one or more (default: %(default)s)",
    )
    parser.add_argument("--kokoro-model", type=Path, metavar="FILE", help="Kokoro's network (.onnx)")
    parser.add_argument("--kokoro-styles", type=Path, metavar="FILE", help="the styles that its voices are mixed of")
    parser.add_argument(
        "--jobs", type=count, default=processors(), metavar="N", help="synthesizers that run at a time (default: cores)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Add clips until there are enough."""
    from training.synthesis.collection import Origin, writing
    from training.synthesis.kokoro import Kokoro
    from training.synthesis.readings import Readings
    from training.synthesis.sentences import read_sentences
    from training.synthesis.voices import PROGRAMS, cast

    sentences = read_sentences(Path(args.text))
    kokoro = Kokoro(args.kokoro_model, args.kokoro_styles)
    chosen = cast([*PROGRAMS, kokoro], args.voices, args.without)
    if chosen.absent:
        print(f"without the voices of {', '.join(chosen.absent)}: not installed", file=sys.stderr)
    digest = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    origin = Origin(
        seed=args.seed,
        sentences=digest,
        voices=[voice.speaker for voice in chosen.voices],
        fragments=args.fragments,
        kokoro=kokoro.digest() if any(voice.synthesizer is kokoro for voice in chosen.voices) else "",
    )
    with writing(Path(args.out), origin) as collection:
        tally = _synthesize(args, collection, Readings(sentences, chosen.voices, args.seed, args.fragments))
        _report(collection, tally)
    return 0


def _synthesize(args: argparse.Namespace, collection: "Collection", readings: "Readings") -> "Tally":
    """Add clips, with a progress bar of clips or hours, whichever the options ask for."""
    from tqdm import tqdm

    from training.synthesis.synthesis import synthesize

    seconds = 3600 * args.hours
    by_clips = args.clips < math.inf
    total, unit = (args.clips, "clip") if by_clips else (round(seconds), "s")

    def done() -> int:
        return collection.clips if by_clips else min(total, int(collection.seconds))

    with tqdm(total=total, initial=done(), unit=unit, disable=None) as bar:
        return synthesize(
            collection,
            readings,
            clips=args.clips,
            seconds=seconds,
            jobs=args.jobs,
            added=lambda: bar.update(done() - bar.n),
        )


def _report(collection: "Collection", tally: "Tally") -> None:
    print(f"{collection.clips:,} clips, {collection.seconds / 3600:.2f} h; {tally.left_out} sentences left out")
    for reason, times in tally.refused.most_common():
        print(f"refused: {times} clips, {reason}")


def _patterns(text: str) -> list[str]:
    return [pattern.strip() for pattern in text.split(",")]
