"""Stretches of an utterance in which the model wrote no words, and words that are put in there afterwards."""

from typing import NamedTuple

from transcripts.joining import divided, joined, not_before
from transcripts.transcript import Transcript

# A word may sound longer than its tokens say: those of CTC are one frame, and a transducer may be late.
_EDGE_SECONDS = 0.3


class Gap(NamedTuple):
    """A stretch of an utterance without words, or a part of one, in seconds."""

    start: float
    stop: float


def gaps(transcript: Transcript, seconds: float, least: float) -> list[Gap]:
    """Return the stretches of an utterance of ``seconds`` without words, of ``least`` seconds or more, in order.

    There are none if the words have no times.
    """
    edge, found = 0.0, []
    for word in transcript.words:
        if word.start is None or word.end is None:
            return []
        found.append(Gap(edge, word.start - _EDGE_SECONDS))
        edge = max(edge, word.end + _EDGE_SECONDS)
    found.append(Gap(edge, seconds))
    return [gap for gap in found if gap.stop - gap.start >= least]


def filled(transcript: Transcript, words: Transcript) -> Transcript:
    """Return a transcript with the words of a gap put in; both have times of the utterance.

    Without times they have no place beside other words, and are left out.
    """
    if not transcript.words:
        return words
    if not words.words or words.words[0].start is None:
        return transcript
    begin = words.words[0].start
    before = sum(1 for word in transcript.words if word.start is not None and word.start < begin)
    first, last = divided(transcript, before)
    return joined([first, words, not_before(last, words.words[-1].end)])
