"""How often each clip is heard in an epoch, so that neither a large folder nor a chatty voice drowns the others."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeVar

from training.takes import Take

_Key = TypeVar("_Key", bound=Hashable)


def sampling_weights(takes: Sequence[Take], source_balance: float, speaker_balance: float) -> list[float]:
    """Return how often to draw each take in an epoch, 1 on average.

    A source's share of an epoch is proportional to (seconds of its audio) ** ``source_balance``, and within a source
    a speaker's to (seconds of theirs) ** ``speaker_balance``; takes of one speaker and source are drawn alike. Powers
    of 1 give every take the weight 1, powers of 0 every source, and every speaker of a source, the same audio.
    """
    of_source = _seconds([take.clip.source for take in takes], takes)
    of_speaker = _seconds([(take.clip.source, take.clip.speaker) for take in takes], takes)
    # What the speakers of a source would be given, to be shared out so that the source gets what it is given.
    within: dict[str, float] = defaultdict(float)
    for (source, _), seconds in of_speaker.items():
        within[source] += seconds**speaker_balance
    weights = []
    for take in takes:
        source, seconds = take.clip.source, of_speaker[take.clip.source, take.clip.speaker]
        speaker_share = seconds**speaker_balance / within[source]
        weights.append(of_source[source] ** source_balance * speaker_share / seconds)
    mean = sum(weights) / len(weights)
    return [_without_rounding(weight / mean) for weight in weights]


def _seconds(keys: Sequence[_Key], takes: Sequence[Take]) -> dict[_Key, float]:
    """Return the audio of each group of takes."""
    seconds: dict[_Key, float] = defaultdict(float)
    for key, take in zip(keys, takes, strict=True):
        seconds[key] += take.seconds
    return seconds


def _without_rounding(weight: float) -> float:
    """Return a weight that is 1 but for rounding as 1, so that such a take is drawn once and never twice."""
    return 1.0 if abs(weight - 1) < 1e-9 else weight
