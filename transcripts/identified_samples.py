"""The part of an utterance that a language identifier gets. Nothing here needs torch."""

import numpy as np
import numpy.typing as npt
import soxr

from transcripts.spoken_language import IDENTIFIED_SECONDS


def identified_samples(samples: npt.NDArray[np.float32], rate: int, identifier_rate: int) -> npt.NDArray[np.float32]:
    """Return what an identifier gets of an utterance, mono [samples]: its first 30 s, at the identifier's rate."""
    begun = samples[: round(IDENTIFIED_SECONDS * rate)]
    return begun if rate == identifier_rate else soxr.resample(begun, rate, identifier_rate)
