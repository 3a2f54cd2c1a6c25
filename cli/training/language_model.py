"""`steno train language-model`: make the n-gram language model of a CTC search."""

import argparse
from pathlib import Path

from cli.model_options import Subparsers
from cli.numbers import count, positive


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "language-model",
        help="make the language model of a CTC decoder",
        description="Count n-grams of a model's tokens in sentences (docs/training.md).",
    )
    parser.add_argument("text", metavar="TEXT", help="sentences, one a line, or a manifest, for its transcripts")
    parser.add_argument(
        "--vocabulary", required=True, metavar="FILE", help="the model's .nemo checkpoint, or its SentencePiece model"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="where the language model goes")
    parser.add_argument(
        "--least",
        type=count,
        nargs="+",
        default=[2, 3, 4],
        metavar="N",
        help="how often n-grams of 2 tokens must occur to be kept, then of 3, and so on (default: 2 3 4)",
    )
    parser.add_argument(
        "--weight", type=positive, default=0.25, metavar="X", help="weight in the search (default: %(default)g)"
    )
    parser.add_argument(
        "--bonus",
        type=positive,
        default=0.75,
        metavar="X",
        help="added to a text's score for each token (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the language model."""
    from training.language_model import write_language_model
    from training.sentences import read_sentences
    from training.vocabulary_file import read_vocabulary

    vocabulary = read_vocabulary(Path(args.vocabulary))
    ngrams = write_language_model(
        map(vocabulary.encode, read_sentences(Path(args.text))),
        vocabulary.tokenizer.pieces,
        Path(args.out),
        least=args.least,
        weight=args.weight,
        bonus=args.bonus,
    )
    print(f"{ngrams:,} n-grams")
    return 0
