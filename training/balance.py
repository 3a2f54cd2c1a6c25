"""How often each clip is drawn in an epoch, to balance sources and speakers."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeVar

from training.takes import Take

_Key = TypeVar("_Key", bound=Hashable)


def sampling_weights(takes: Sequence[Take], source_balance: float, speaker_balance: float) -> list[float]:
    """Return how often to draw each take in an epoch, 1 on average.

    A source's share of an epoch is proportional to (seconds of its audio) ** ``source_balance``, and within a source
    a speaker's to (seconds of theirs) ** ``speaker_balance``; takes of one speaker and source have equal weights. With
    powers of 1, each take has the weight 1. With powers of 0, all sources have the same audio, and so have all speakers
    of a source.
    """
    of_source = _seconds([take.clip.source for take in takes], takes)
    of_speaker = _seconds([(take.clip.source, take.clip.speaker) for take in takes], takes)
    # Sums of the speakers' shares in each source, to normalise them to the source's share.
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
    """Round a weight that is nearly 1 to 1, so that such a take is drawn exactly once."""
    return 1.0 if abs(weight - 1) < 1e-9 else weight
