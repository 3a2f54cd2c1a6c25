"""Stretches of speech for which the model wrote nothing are transcribed once more, alone.

Transducers, TDT models most of all, sometimes lose the end of a clip, some seconds in its middle, or all of it, though
they transcribe the same sound when it is cut elsewhere; and all models lose a quiet voice behind a loud one. A stretch
is transcribed again without the silence around it, so that frames begin elsewhere, and by the model's CTC decoder, if
it has one.
"""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from audio.resample import resampled
from audio.samples import Samples
from audio.segment.level import Level
from audio.segment.voice_activity import FRAME_SECONDS, RATE, SpeechDetector
from service.dispatch.errors import DispatchError
from service.threads import in_thread
from transcripts.joining import Gap, filled, gaps, shifted
from transcripts.transcript import Transcript

# Frames of such a probability are speech beyond doubt, and there must be so much of it, in seconds.
_SURE, _LEAST = 0.8, 1.0
# Of several voices the model may hear the loudest again, and no other; so stretches that are left are tried too.
_PASSES = 3
# Kept before and after the speech: the detector is late at soft sounds. The detector needs some sound before a gap.
_MARGIN, _LEAD = 0.16, 0.5
# A stretch begins at least so much after the utterance: half a frame of 80 ms, so that it is not the same sound again.
_SHIFT = 0.04
# A mean power below this, which no speech has.
_SILENT = 1e-10


class Rescued(NamedTuple):
    """What a second transcription gave."""

    transcript: Transcript  # the transcript with the words that were found
    stretches: Sequence[Gap] = ()  # the stretches that had words, with times of the utterance


@dataclass(frozen=True, slots=True)
class Rescue:
    """Finds stretches without words that have speech, and puts in what the model makes of them alone."""

    detector: SpeechDetector
    threads: Executor

    async def rescue(
        self,
        samples: Samples,
        rate: int,
        transcript: Transcript,
        transcribe: Callable[[Samples], Awaitable[Transcript]],
    ) -> Rescued:
        """Return the transcript of an utterance with the words of stretches that the model passed over.

        A transcript that has words throughout is returned as it is, and costs nothing. Samples are mono, (samples,);
        times are those of the utterance. A stretch that cannot be transcribed stays without words.
        """
        tried: set[Gap] = set()
        rescued: list[Gap] = []
        for _ in range(_PASSES):
            empty = [gap for gap in gaps(transcript, len(samples) / rate, _LEAST) if gap not in tried]
            if not empty:
                break
            tried.update(empty)
            for stretch in await in_thread(self.threads, partial(self._speech, samples, rate, empty)):
                try:
                    found = await transcribe(samples[int(stretch.start * rate) : int(stretch.stop * rate)])
                except DispatchError:  # the queue is full, or it is too late; what there is counts
                    return Rescued(transcript, _merged(rescued))
                before, transcript = transcript, filled(transcript, shifted(found, stretch.start))
                if transcript.text != before.text:
                    rescued.append(stretch)
        return Rescued(transcript, _merged(rescued))

    def _speech(self, samples: Samples, rate: int, empty: Sequence[Gap]) -> list[Gap]:
        """Return the stretches from the first to the last sound of speech in gaps with enough of it."""
        found = []
        for gap in empty:
            lead = min(gap.start, _LEAD)
            before, sound = np.split(samples[: int(gap.stop * rate)], [int(gap.start * rate)])
            if not len(sound) or np.square(sound, dtype=np.float64).mean() < _SILENT:
                continue
            probabilities = self._probabilities([before[len(before) - int(lead * rate) :], sound], rate)
            spoken = np.flatnonzero(probabilities[round(lead / FRAME_SECONDS) :] >= _SURE)
            if len(spoken) * FRAME_SECONDS < _LEAST:
                continue
            first, last = (gap.start + float(frame) * FRAME_SECONDS for frame in (spoken[0], spoken[-1] + 1))
            found.append(Gap(max(gap.start, first - _MARGIN, _SHIFT), min(gap.stop, last + _MARGIN)))
        return found

    def _probabilities(self, sounds: Sequence[Samples], rate: int) -> Samples:
        stream = self.detector.stream()
        # Each at its own level: a quiet voice behind a loud one is what models pass over.
        raised = (Level().raised(sound) for sound in sounds)
        blocks = [stream.push(block)[0] for block in resampled(raised, rate, RATE)]
        return np.concatenate([*blocks, stream.finish()[0]])


def _merged(stretches: Sequence[Gap]) -> list[Gap]:
    """Return stretches in order, those that overlap as one."""
    merged: list[Gap] = []
    for start, stop in sorted(stretches):
        if merged and start <= merged[-1].stop:
            start, before = merged.pop()
            stop = max(stop, before)
        merged.append(Gap(start, stop))
    return merged
