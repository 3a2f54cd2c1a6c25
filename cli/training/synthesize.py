"""`steno train synthesize`: speech for the bundled model, made from sentences."""

import argparse
from pathlib import Path

from cli.errors import CommandError
from cli.model_options import Subparsers
from cli.numbers import positive, whole


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "synthesize",
        help="make speech to train on",
        description="Have Flite say sentences (docs/bundled-model.md).",
    )
    parser.add_argument("text", metavar="TEXT", help="file of sentences, one a line; may be compressed (.xz)")
    parser.add_argument("--out", required=True, metavar="DIR", help="where manifest.jsonl and the clips go")
    parser.add_argument("--hours", required=True, type=positive, metavar="H", help="how much speech to make")
    parser.add_argument(
        "--seed", type=whole(0), default=0, metavar="S", help="seed of which voice says what (default: %(default)s)"
    )
    parser.add_argument("--without", nargs="+", default=[], metavar="VOICE", help="all voices but these: rms")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the clips."""
    from training.bundled import flite
    from training.bundled.synthesis import Readings, synthesize
    from training.sentences import read_sentences

    sentences, known = read_sentences(Path(args.text)), flite.voices()
    voices = [voice for voice in known if voice not in args.without]
    if not voices or set(args.without) - set(known):
        raise CommandError(f"--without leaves voices out of {', '.join(known)}, and not all")
    tally = synthesize(Readings(sentences, voices, args.seed), Path(args.out), seconds=3600 * args.hours)
    print(f"{tally.clips:,} clips, {tally.seconds / 3600:.2f} h; {tally.left_out} sentences left out")
    for reason, times in tally.refused.most_common():
        print(f"refused: {times} clips, {reason}")
    return 0
