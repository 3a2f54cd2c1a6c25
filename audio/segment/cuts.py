"""Cut a recording into utterances."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audio.recording import Recording
from audio.resample import resampled
from audio.samples import Samples
from audio.segment.level import Level
from audio.segment.segmenter import Segment, Segmenter, SegmentRule
from audio.segment.voice_activity import FRAME_SECONDS, RATE, SpeechDetector
from audio.segment.voice_change import bands_of

SpeechProbabilities = NDArray[np.float32]  # of each frame of ``FRAME_SECONDS``

# A block takes about 50 ms of one core, which bounds the work that is wasted when a caller leaves.
BLOCK_SECONDS = 30


class CutBlock(NamedTuple):
    """A block of a recording: the utterances that end in it, in samples, and its probabilities of speech."""

    utterances: list[Segment]
    probabilities: SpeechProbabilities


def cuts(recording: Recording, detector: SpeechDetector, rule: SegmentRule) -> Iterator[CutBlock]:
    """Yield the utterances of a recording, in samples of its own rate, block by block.

    The utterances are in order, none is longer than the rule allows, each shares ``shared`` samples with the next, and
    together they hold all speech; a recording without speech has none.
    """
    segmenter = Segmenter(rule, FRAME_SECONDS)
    for probabilities, frames in _scored(recording, detector):
        yield CutBlock(_in_samples(segmenter.push(probabilities, bands_of(frames)), recording), probabilities)
    yield CutBlock(_in_samples(segmenter.finish(), recording), np.empty(0, np.float32))


def speech(recording: Recording, detector: SpeechDetector) -> SpeechProbabilities:
    """Return the probability of speech in each frame of a recording."""
    return np.concatenate([probabilities for probabilities, _ in _scored(recording, detector)])


def _scored(
    recording: Recording, detector: SpeechDetector
) -> Iterator[tuple[SpeechProbabilities, NDArray[np.float32]]]:
    stream, level = detector.stream(), Level()
    for block in resampled(map(level.raised, _blocks(recording)), recording.rate, RATE):
        yield stream.push(block)
    yield stream.finish()


def _in_samples(segments: Iterable[Segment], recording: Recording) -> list[Segment]:
    size, found = FRAME_SECONDS * recording.rate, []
    for start, stop, shared in segments:
        first, last = round(start * size), min(round(stop * size), len(recording))
        if first < last:
            # Counted from the next segment's start, which is rounded too.
            found.append(Segment(first, last, last - round((stop - shared) * size) if shared else 0))
    return found


def _blocks(recording: Recording) -> Iterator[Samples]:
    size = BLOCK_SECONDS * recording.rate
    for start in range(0, len(recording), size):
        yield recording.read(start, start + size)
