"""`steno train vocabulary`: the labels of a model to be trained."""

import argparse
from pathlib import Path

from cli.model_options import Subparsers
from cli.numbers import count


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "vocabulary",
        help="make the labels of a model to be trained",
        description="Make a SentencePiece model, which a recipe may name as its vocabulary (docs/training.md).",
    )
    parser.add_argument("text", metavar="TEXT", help="sentences, one a line, or a manifest, for its transcripts")
    parser.add_argument("--size", type=count, required=True, metavar="N", help="how many pieces")
    parser.add_argument("--out", required=True, metavar="FILE", help="where the SentencePiece model goes")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the vocabulary."""
    from training.sentences import read_sentences
    from training.vocabulary import new_vocabulary

    model = new_vocabulary(read_sentences(Path(args.text)), args.size)
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model)
    print(f"{path}: a SentencePiece model of {args.size} pieces")
    return 0
