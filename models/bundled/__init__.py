"""The model that ships with Steno, so that a first transcript needs no download. MODEL_CARD.md describes it."""

from pathlib import Path

NAME = "bundled"
LANGUAGES = ("en",)  # ISO 639-1; NeMo's checkpoints do not name theirs
CHECKPOINT = Path(__file__).with_name("steno-bundled.nemo")
LANGUAGE_MODEL = Path(__file__).with_name("steno-bundled.ngrams")
