"""`steno train synthesize`: speech for the bundled model, made from sentences."""

import argparse
import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import CommandError
from cli.model_options import Subparsers
from cli.numbers import count, positive, whole
from models.device.resources import processors

if TYPE_CHECKING:
    from training.bundled.collection import Collection
    from training.bundled.flite import Flite
    from training.bundled.readings import Readings
    from training.bundled.synthesis import Tally


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "synthesize",
        help="make speech to train on",
        description="Have Flite say sentences (docs/bundled-model.md). A run that was stopped goes on where "
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
    parser.add_argument("--without", nargs="+", default=[], metavar="VOICE", help="all voices but these: rms")
    parser.add_argument(
        "--jobs",
        type=count,
        default=processors(),
        metavar="N",
        help="sentences that are said at a time (default: cores)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Add clips until there are enough."""
    from training.bundled.collection import Origin, writing
    from training.bundled.flite import Flite
    from training.bundled.readings import Readings
    from training.sentences import read_sentences

    sentences, flite = read_sentences(Path(args.text)), Flite()
    known = flite.voices()
    voices = [voice for voice in known if voice not in args.without]
    if not voices or set(args.without) - set(known):
        raise CommandError(f"--without leaves voices out of {', '.join(known)}, and not all")
    digest = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    origin = Origin(seed=args.seed, sentences=digest, voices=voices)
    with writing(Path(args.out), origin) as collection:
        tally = _synthesize(args, collection, flite, Readings(sentences, voices, args.seed))
        _report(collection, tally)
    return 0


def _synthesize(args: argparse.Namespace, collection: "Collection", flite: "Flite", readings: "Readings") -> "Tally":
    """Add clips, with a progress bar of clips or hours, whichever the options ask for."""
    from tqdm import tqdm

    from training.bundled.synthesis import synthesize

    seconds = 3600 * args.hours
    by_clips = args.clips < math.inf
    total, unit = (args.clips, "clip") if by_clips else (round(seconds), "s")

    def done() -> int:
        return collection.clips if by_clips else min(total, int(collection.seconds))

    with tqdm(total=total, initial=done(), unit=unit, disable=None) as bar:
        return synthesize(
            collection,
            flite,
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
