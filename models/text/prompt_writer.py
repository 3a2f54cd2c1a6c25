"""Prompts of an attention decoder: the options of a caller, and their special tokens.

The formats are those of NeMo's Canary models, and that of Cohere Transcribe.
"""

import re
from collections.abc import Iterator, Sequence

from models.config import PromptConfig
from models.text.tokenizers import PromptTokenizer
from transcripts.prompt import ENGLISH, Prompt, PromptError

END = "<|endoftext|>"

_START = "<|startoftranscript|>"
_LANGUAGE = re.compile(r"<\|([a-z]{2})\|>")
# Pieces of each prompt format, in order; a name in braces is replaced by its value.
_TEMPLATES = {
    "canary": (_START, "{language}", "{task}", "{target}", "{punctuation}"),
    "canary2": (
        "<|startofcontext|>",
        _START,
        "<|emo:undefined|>",
        "{language}",
        "{target}",
        "{punctuation}",
        "{itn}",
        "{timestamps}",
        "<|nodiarize|>",
    ),
    "cohere": (
        "▁",
        "<|startofcontext|>",
        _START,
        "<|emo:undefined|>",
        "{language}",
        "{target}",
        "{punctuation}",
        "<|noitn|>",
        "<|notimestamp|>",
        "<|nodiarize|>",
    ),
}
# Formats of models that translate: from English and into it, which no checkpoint says.
_TRANSLATING = ("canary", "canary2")
_CHOICES = {
    "{task}": {False: "<|transcribe|>", True: "<|translate|>"},
    "{punctuation}": {True: "<|pnc|>", False: "<|nopnc|>"},
    "{itn}": {False: "<|noitn|>", True: "<|itn|>"},
    "{timestamps}": {False: "<|notimestamp|>", True: "<|timestamp|>"},
}
# A vocabulary may lack the positive piece of these: then prompts cannot ask for it.
_OPTIONAL = ("{itn}", "{timestamps}")
_NO_TRANSLATION = "this model does not translate"
_NO_ITN = "this model cannot be asked to write numbers as people do"


class PromptWriter:
    """Turns prompts into tokens, always the same number of them, and refuses what a model cannot do.

    Attributes:
        end: the token that ends a text.
    """

    def __init__(self, config: PromptConfig, tokenizer: PromptTokenizer) -> None:
        self.end: int = tokenizer.pieces.index(END)
        self._config = config
        self._tokenizer = tokenizer

    def tokens(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt.

        Raises:
            PromptError: if the model cannot do what it asks for.
        """
        language = prompt.language or self._config.default_language
        target = prompt.target_language or language
        _check_language("language", language, self._config.languages)
        _check_language("target_language", target, self._config.languages)
        if target != language and not translates(self._config):
            raise PromptError("target_language", _NO_TRANSLATION)
        if target != language and ENGLISH not in (language, target):
            message = f"this model translates from English and into it, not from {language!r} into {target!r}"
            raise PromptError("target_language", message)
        if prompt.timestamps and not self._config.timestamps:
            raise PromptError("timestamps", "this model does not write the times of words")
        if prompt.itn and not self._config.itn:
            raise PromptError("itn", _NO_ITN)
        chosen = {
            "{language}": f"<|{language}|>",
            "{target}": f"<|{target}|>",
            "{task}": _CHOICES["{task}"][target != language],
            "{punctuation}": _CHOICES["{punctuation}"][prompt.punctuation],
            "{itn}": _CHOICES["{itn}"][prompt.itn],
            "{timestamps}": _CHOICES["{timestamps}"][prompt.timestamps],
        }
        return self._tokenizer.encode_prompt([chosen.get(slot, slot) for slot in _TEMPLATES[self._config.format]])


def translates(config: PromptConfig) -> bool:
    """Return whether a model translates."""
    return config.format in _TRANSLATING and ENGLISH in config.languages and len(config.languages) > 1


def check_unprompted(prompt: Prompt, languages: Sequence[str] | None, *, punctuates: bool) -> None:
    """Check that a model without prompts does what a prompt asks for.

    Args:
        prompt: the prompt.
        languages: the model's languages; None if they are not known.
        punctuates: whether it writes punctuation.

    Raises:
        PromptError: if it does not.
    """
    if prompt.language is not None and languages is not None:
        _check_language("language", prompt.language, languages)
    spoken = prompt.language or (languages[0] if languages is not None and len(languages) == 1 else None)
    if prompt.target_language not in (None, spoken):
        raise PromptError("target_language", _NO_TRANSLATION)
    if punctuates and not prompt.punctuation:
        raise PromptError("punctuation", "this model cannot leave out punctuation")
    if prompt.itn:
        raise PromptError("itn", _NO_ITN)


def _check_language(field: str, language: str, spoken: Sequence[str]) -> None:
    if language not in spoken:
        raise PromptError(field, f"this model does not speak {language!r}; it speaks {', '.join(spoken)}")


def with_vocabulary(config: PromptConfig, pieces: Sequence[str]) -> PromptConfig:
    """Return a configuration adapted to the pieces of a vocabulary: times and ``itn`` need theirs.

    If it names no language, it gets each that has a piece. The model may not have been trained on them, nor on
    ``<|itn|>``; no checkpoint says so.
    """
    known = set(pieces)
    tagged = sorted(match[1] for piece in known if (match := _LANGUAGE.fullmatch(piece)))
    languages = config.languages or tuple(tagged)
    default = config.default_language if config.default_language in languages else next(iter(languages), ENGLISH)
    timed = config.timestamps and {_CHOICES["{timestamps}"][True], "<|0|>"} <= known
    itn = "{itn}" in _TEMPLATES[config.format] and _CHOICES["{itn}"][True] in known
    return PromptConfig(config.format, languages, default, timed, itn)


def required_pieces(config: PromptConfig) -> Iterator[str]:
    """Yield the special pieces without which a vocabulary cannot write prompts, or end a text."""
    yield END
    for slot in _TEMPLATES[config.format]:
        if slot in _OPTIONAL:
            yield _CHOICES[slot][False]
        elif slot in _CHOICES:
            yield from _CHOICES[slot].values()
        elif slot not in ("{language}", "{target}"):
            yield slot
    yield from (f"<|{language}|>" for language in (config.default_language, *config.languages))
