"""Prompts of an attention decoder: what a caller may ask for, and the special tokens that ask the model.

The formats are those of NeMo's Canary models. Special tokens are looked up by their text only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.config import PromptConfig
from models.tokenizers import PromptTokenizer

END = "<|endoftext|>"
ENGLISH = "en"

_START = "<|startoftranscript|>"
_LANGUAGE = re.compile(r"<\|([a-z]{2})\|>")
# Pieces of every prompt, in order; what stands in braces is chosen.
_TEMPLATES = {
    "canary": (_START, "{language}", "{task}", "{target}", "{punctuation}"),
    "canary2": (
        "<|startofcontext|>",
        _START,
        "<|emo:undefined|>",
        "{language}",
        "{target}",
        "{punctuation}",
        "<|noitn|>",
        "{timestamps}",
        "<|nodiarize|>",
    ),
}
_CHOICES = {
    "{task}": {False: "<|transcribe|>", True: "<|translate|>"},
    "{punctuation}": {True: "<|pnc|>", False: "<|nopnc|>"},
    "{timestamps}": {False: "<|notimestamp|>", True: "<|timestamp|>"},
}


class PromptError(ValueError):
    """A model cannot do what a prompt asks for.

    Attributes:
        field: the field of ``Prompt`` that is at fault.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked for in one utterance.

    Attributes:
        language: ISO 639-1 code of what is spoken; None leaves it to the model.
        target_language: of the text; None for the language that is spoken.
        punctuation: whether the text has punctuation and capitals, where the model can write it either way.
        timestamps: whether words have times, where that is a choice.
    """

    language: str | None = None
    target_language: str | None = None
    punctuation: bool = True
    timestamps: bool = False


class PromptWriter:
    """Turns prompts into tokens, all of the same length, and refuses what a model cannot do.

    Attributes:
        end: the token that ends a text.
    """

    def __init__(self, config: PromptConfig, tokenizer: PromptTokenizer) -> None:
        self.end: int = tokenizer.pieces.index(END)
        self._config = config
        self._tokenizer = tokenizer

    def tokens(self, prompt: Prompt) -> list[int]:
        """Return the tokens that ask for what a prompt says.

        Raises:
            PromptError: if the model cannot do it.
        """
        language = prompt.language or self._config.default_language
        target = prompt.target_language or language
        _check_language("language", language, self._config.languages)
        _check_language("target_language", target, self._config.languages)
        # The models were trained to translate from English and into it, which no checkpoint says.
        if target != language and ENGLISH not in (language, target):
            message = f"this model translates from English and into it, not from {language!r} into {target!r}"
            raise PromptError("target_language", message)
        if prompt.timestamps and not self._config.timestamps:
            raise PromptError("timestamps", "this model does not write when words are said")
        chosen = {
            "{language}": f"<|{language}|>",
            "{target}": f"<|{target}|>",
            "{task}": _CHOICES["{task}"][target != language],
            "{punctuation}": _CHOICES["{punctuation}"][prompt.punctuation],
            "{timestamps}": _CHOICES["{timestamps}"][prompt.timestamps],
        }
        return self._tokenizer.encode_prompt([chosen.get(slot, slot) for slot in _TEMPLATES[self._config.format]])


def translates(config: PromptConfig) -> bool:
    """Tell whether a model writes what is said in another language."""
    return ENGLISH in config.languages and len(config.languages) > 1


def check_unprompted(prompt: Prompt, languages: Sequence[str] | None, *, punctuates: bool) -> None:
    """Accept what a model does that takes no prompts.

    Args:
        prompt: what is asked for.
        languages: what the model speaks; None where that is not known.
        punctuates: whether it writes punctuation.

    Raises:
        PromptError: if it does something else.
    """
    if prompt.language is not None and languages is not None:
        _check_language("language", prompt.language, languages)
    spoken = prompt.language or (languages[0] if languages is not None and len(languages) == 1 else None)
    if prompt.target_language not in (None, spoken):
        raise PromptError("target_language", "this model does not translate")
    if punctuates and not prompt.punctuation:
        raise PromptError("punctuation", "this model cannot leave out punctuation")


def _check_language(field: str, language: str, spoken: Sequence[str]) -> None:
    if language not in spoken:
        raise PromptError(field, f"this model does not speak {language!r}; it speaks {', '.join(spoken)}")


def with_vocabulary(config: PromptConfig, pieces: Sequence[str]) -> PromptConfig:
    """Return a configuration with what the pieces of a vocabulary tell.

    Where the languages are not known, they are those that it has pieces for. There may be more of them than the model
    was trained on, which no checkpoint says.
    """
    known = set(pieces)
    tagged = sorted(match[1] for piece in known if (match := _LANGUAGE.fullmatch(piece)))
    languages = config.languages or tuple(tagged)
    default = config.default_language if config.default_language in languages else next(iter(languages), ENGLISH)
    timed = config.timestamps and {_CHOICES["{timestamps}"][True], "<|0|>"} <= known
    return PromptConfig(config.format, languages, default, timed)


def required_pieces(config: PromptConfig) -> Iterator[str]:
    """Yield the special pieces without which a vocabulary cannot write prompts, or end a text."""
    yield END
    for slot in _TEMPLATES[config.format]:
        if slot == "{timestamps}":
            yield _CHOICES[slot][False]
        elif slot in _CHOICES:
            yield from _CHOICES[slot].values()
        elif slot not in ("{language}", "{target}"):
            yield slot
    yield from (f"<|{language}|>" for language in (config.default_language, *config.languages))
