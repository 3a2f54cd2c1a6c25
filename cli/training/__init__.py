"""`steno train`: the commands with which models are trained, and what that needs is made."""

from cli.model_options import Subparsers
from cli.training import language_model, run, vocabulary


def add_parser(subparsers: Subparsers) -> None:
    """Add the group of commands."""
    parser = subparsers.add_parser(
        "train", help="train a model", description="Train a model, and make what that needs (docs/training.md)."
    )
    group = parser.add_subparsers(title="commands", dest="step", required=True, metavar="COMMAND")
    for command in (run, vocabulary, language_model):
        command.add_parser(group)
