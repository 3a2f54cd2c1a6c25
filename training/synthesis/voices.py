"""All voices, and the choice among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from training.synthesis.errors import SynthesisError
from training.synthesis.espeak import Espeak
from training.synthesis.festival import Festival
from training.synthesis.flite import Flite
from training.synthesis.voice import Synthesizer, Voice

PROGRAMS: tuple[Synthesizer, ...] = (Espeak(), Flite(), Festival())

# A released model has about half of their words wrong, or more (docs/training.md), so they are used only on request.
UNINTELLIGIBLE = tuple(f"espeak-ng/{accent}*" for accent in ("en-gb-scotland", "en-gb-x-gbc", "en-029", "en-us-nyc"))


@dataclass(frozen=True, slots=True)
class Cast:
    """The chosen voices.

    Attributes:
        voices: installed voices, in a fixed order.
        absent: packages of chosen voices that are not installed.
    """

    voices: list[Voice]
    absent: list[str]


def voices_of(synthesizers: Sequence[Synthesizer]) -> list[Voice]:
    """Return all voices of some synthesizers, installed or not."""
    return [Voice(synthesizer, name) for synthesizer in synthesizers for name in synthesizer.packages]


def cast(synthesizers: Sequence[Synthesizer], only: Sequence[str] | None = None, without: Sequence[str] = ()) -> Cast:
    """Choose voices by patterns.

    Args:
        synthesizers: the synthesizers.
        only: shell patterns of speakers; None for all that a model can understand.
        without: patterns of speakers that are left out.

    Raises:
        SynthesisError: if a pattern matches no voice, or no voice is left, or none is installed.
    """
    known = voices_of(synthesizers)
    for pattern in (*(only or ()), *without):
        if not any(_fits(voice, [pattern]) for voice in known):
            raise SynthesisError(f"no voice is called {pattern!r}; there are {_examples(known)}")
    wanted = [
        voice
        for voice in known
        if not _fits(voice, without) and (not _fits(voice, UNINTELLIGIBLE) if only is None else _fits(voice, only))
    ]
    if not wanted:
        raise SynthesisError("no voice is left")
    installed = {f"{program.name}/{name}" for program in synthesizers for name in program.installed()}
    voices = [voice for voice in wanted if voice.speaker in installed]
    absent = sorted({voice.package for voice in wanted} - {voice.package for voice in voices})
    if not voices:
        raise SynthesisError(f"none of the voices is installed; these packages have them: {', '.join(absent)}")
    return Cast(voices, absent)


def _fits(voice: Voice, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(voice.speaker, pattern) for pattern in patterns)


def _examples(known: Sequence[Voice]) -> str:
    """Return a voice of each synthesizer."""
    first = {voice.synthesizer.name: voice.speaker for voice in reversed(known)}
    return ", ".join(reversed(first.values()))
