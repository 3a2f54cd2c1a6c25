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
    """The options of one utterance.

    Attributes:
        language: ISO 639-1 code of the spoken language; None is the model's default.
        target_language: language of the text; None is the spoken one.
        punctuation: whether the text has punctuation and capitals, if the model leaves a choice.
        timestamps: whether words have times, if the model leaves a choice.
        itn: whether the model is to write numbers as people do (inverse text normalisation), if it can be asked to.
        phrases: phrases that are expected to be said, as lines (phrases.py); any model takes them.
        written_languages: languages that the text may be in, if ``language`` is None, of a model without a prompt for
            the language: it writes no letters of other scripts. Empty: any.
    """

    language: str | None = None
    target_language: str | None = None
    punctuation: bool = True
    timestamps: bool = False
    itn: bool = False
    phrases: str = ""
    written_languages: tuple[str, ...] = ()


DEFAULT_PROMPT = Prompt()
