"""How often each clip is drawn in an epoch, to balance sources and speakers."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.recipe import TrainingData
from training.take_index import TakeIndex

_ROUNDING = 1e-9


def weights_of_takes(takes: TakeIndex, data: TrainingData) -> NDArray[np.float64]:
    """Return how often to draw each take in an epoch, by a recipe's balance and its weights of data sets."""
    weights = sampling_weights(takes.seconds, takes.sources, takes.speakers, data.source_balance, data.speaker_balance)
    return weights * np.asarray(data.weights)[takes.sets] if data.weights else weights


def sampling_weights(
    seconds: ArrayLike, sources: ArrayLike, speakers: ArrayLike, source_balance: float, speaker_balance: float
) -> NDArray[np.float64]:
    """Return how often to draw each take in an epoch, 1 on average.

    A source's share of an epoch is proportional to (seconds of its audio) ** ``source_balance``, and within a source
    a speaker's to (seconds of theirs) ** ``speaker_balance``; takes of one speaker and source have equal weights. With
    powers of 1, each take has the weight 1. With powers of 0, all sources have the same audio, and so have all speakers
    of a source. Sources are numbers, and so are speakers, another one in another source.
    """
    lengths = np.asarray(seconds, dtype=np.float64)
    if source_balance == speaker_balance == 1:
        return np.ones(len(lengths))
    source = np.unique(np.asarray(sources), return_inverse=True)[1]
    _, first, speaker = np.unique(np.asarray(speakers), return_index=True, return_inverse=True)
    of_source, of_speaker = np.bincount(source, lengths), np.bincount(speaker, lengths)
    shares = of_speaker**speaker_balance
    # Sums of the speakers' shares in each source, to normalise them to the source's share.
    within = np.bincount(source[first], shares)
    weights = (of_source[source] ** source_balance) * (shares[speaker] / within[source]) / of_speaker[speaker]
    weights /= weights.mean()
    # A weight that is nearly 1 is 1, so that such a take is drawn exactly once.
    weights[np.abs(weights - 1) < _ROUNDING] = 1.0
    return weights
