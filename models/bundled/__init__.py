"""The model that ships with Steno, so that a first transcript needs no download; MODEL_CARD.md says what it is."""

from pathlib import Path

NAME = "bundled"
LANGUAGES = ("en",)  # ISO 639-1; NeMo's checkpoints do not name theirs
CHECKPOINT = Path(__file__).with_name("steno-bundled.nemo")


def checkpoint_path(model: str | Path) -> Path:
    """Return the file that a model's name stands for: the bundled checkpoint for ``"bundled"``, else itself."""
    return CHECKPOINT if model == NAME else Path(model)
