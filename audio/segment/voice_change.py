"""Where the voice changes: the Bayesian information criterion of Chen and Gopalakrishnan (1998).

Models normalise the features of an utterance over its length, so two voices in one cost words of both. Speech before
and after a pause is described by one normal distribution of its spectrum, or by two: two voices, or two microphones,
are described much better by two.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audio.samples import Samples
from audio.segment.voice_activity import FRAME_SAMPLES, RATE

# More runs are halved first: an hour in one piece may have thousands, and each change that is found searches the rest.
_MOST_RUNS = 256
_LEAST_FRAMES = 32  # on each side: fewer say nothing about a distribution
# What two distributions must gain, in nats for each band. Chosen with joined clips of LibriSpeech.
_GAIN = 36.0
_FLOOR = 0.01  # of variances, in nats squared
_WINDOW = np.hanning(FRAME_SAMPLES).astype(np.float32)
_SILENCE = 1e-6  # energy of a band without sound


def _filters() -> NDArray[np.float32]:
    """Return the weights of frequencies in 20 bands, equally wide in mel, of 100 to 7,000 Hz [bands, frequencies]."""
    mel = 2595 * np.log10(1 + np.fft.rfftfreq(FRAME_SAMPLES, 1 / RATE) / 700)
    first, last = 2595 * np.log10(1 + np.array([100, 7_000]) / 700)
    centres, width = np.linspace(first, last, 22)[1:-1, None], (last - first) / 21
    weights: NDArray[np.float32] = np.maximum(0, 1 - np.abs(mel - centres) / width).astype(np.float32)
    return weights


_FILTERS = _filters()


def bands_of(frames: Samples) -> NDArray[np.float32]:
    """Return the logarithm of the energy of frames [frames, 512 samples] in each band [frames, bands]."""
    powers = np.square(np.abs(np.fft.rfft(frames * _WINDOW))).astype(np.float32)
    # No matrix product, whose threads would spin beside the event loop for milliseconds after each.
    bands: NDArray[np.float32] = np.log(np.einsum("tf,bf->tb", powers, _FILTERS) + _SILENCE)
    return bands


def voice_changes(runs: Sequence[NDArray[np.float32]]) -> list[int]:
    """Return the runs of speech with which another voice begins, by their indices, in order.

    Args:
        runs: the runs of speech of one utterance, each the logarithms of its frames' bands [frames, bands].
    """
    if len(runs) > _MOST_RUNS:
        middle = len(runs) // 2
        return [*voice_changes(runs[:middle]), *(middle + index for index in voice_changes(runs[middle:]))]
    first = _clearest_change(runs)
    if first is None:
        return []
    return [*voice_changes(runs[:first]), first, *(first + index for index in voice_changes(runs[first:]))]


def _clearest_change(runs: Sequence[NDArray[np.float32]]) -> int | None:
    frames = np.cumsum([len(run) for run in runs])[:, None, None]
    sums = np.cumsum([run.sum(axis=0, dtype=np.float64) for run in runs], axis=0)
    products = np.cumsum([np.einsum("ti,tj->ij", wide := run.astype(np.float64), wide) for run in runs], axis=0)
    before, after = frames[:-1], frames[-1] - frames[:-1]
    enough = np.flatnonzero(np.minimum(before, after) >= _LEAST_FRAMES)
    if not len(enough):
        return None
    gain = _cost(frames[-1:], sums[-1:], products[-1:]) - (
        _cost(before[enough], sums[enough], products[enough])
        + _cost(after[enough], sums[-1] - sums[enough], products[-1] - products[enough])
    )
    best = int(gain.argmax())
    return int(enough[best]) + 1 if gain[best] > _GAIN * sums.shape[1] else None


def _cost(frames: NDArray[np.int64], sums: NDArray[np.float64], products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what frames cost, in nats, under the normal distribution that fits them best; up to a constant."""
    means = sums / frames[:, :, 0]
    covariances = products / frames - means[:, :, None] * means[:, None, :] + _FLOOR * np.eye(sums.shape[1])
    cost: NDArray[np.float64] = frames[:, 0, 0] * np.linalg.slogdet(covariances)[1]
    return cost
