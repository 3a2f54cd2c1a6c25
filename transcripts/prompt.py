"""The options of a model with prompts, for one utterance. Nothing here needs torch."""

from typing import NamedTuple

# Translations are from English or into it.
ENGLISH = "en"


class PromptError(ValueError):
    """A model cannot do what the ``field`` of a prompt asks for."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


class Prompt(NamedTuple):
    """The options of one utterance."""

    language: str | None = None  # ISO 639-1 code of the spoken language; None is the model's default
    target_language: str | None = None  # language of the text; None is the spoken one
    punctuation: bool = True  # whether the text has punctuation and capitals, if the model leaves a choice
    timestamps: bool = False  # whether words have times, if the model leaves a choice
    itn: bool = False  # whether the model is to write numbers as people do (inverse text normalisation), if it can
    phrases: str = ""  # phrases that are expected to be said, as lines (phrases.py); any model takes them
    # Languages that the text may be in, if ``language`` is None, of a model without a prompt for the language: it
    # writes no letters of other scripts. Empty: any.
    written_languages: tuple[str, ...] = ()


DEFAULT_PROMPT = Prompt()
