"""Adding synthetic speech to a collection until there is enough."""

import math
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count

from audio.samples import Samples
from training.ahead import ahead
from training.bundled.collection import Collection
from training.bundled.errors import SynthesisError, UnusableSpeechError
from training.bundled.flite import Flite
from training.bundled.readings import Reading, Readings
from training.bundled.speech import check

# Attempts at a sentence before it is left out.
_ATTEMPTS = 3
# Sentences left out in a row before the run fails.
_TOO_MANY_LEFT_OUT = 20


@dataclass(slots=True)
class Tally:
    """Counts of sentences and clips that were not used.

    Attributes:
        left_out: sentences of which all attempts failed.
        refused: refused clips by reason, also of sentences that succeeded later.
    """

    left_out: int = 0
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Outcome:
    number: int
    reading: Reading
    samples: Samples | None
    refused: list[str]


def synthesize(
    collection: Collection,
    flite: Flite,
    readings: Readings,
    *,
    clips: float = math.inf,
    seconds: float = math.inf,
    jobs: int,
    added: Callable[[], object],
) -> Tally:
    """Add clips until a collection has ``clips`` clips or ``seconds`` of speech.

    Args:
        collection: the collection.
        flite: the synthesizer.
        readings: draws the reading of each clip.
        clips: number of clips to reach.
        seconds: seconds of speech to reach.
        jobs: synthesizers that run at the same time.
        added: called after each clip.

    Raises:
        SynthesisError: if 20 sentences in a row are left out.
        OSError: if the collection cannot be written.
    """
    tally = Tally()
    left_out_in_a_row = 0
    numbers = count(collection.next_number)
    with closing(ahead(lambda number: _say(flite, readings, number), numbers, threads=jobs, held=2 * jobs)) as outcomes:
        while collection.clips < clips and collection.seconds < seconds:
            outcome = next(outcomes)
            tally.refused.update(outcome.refused)
            if outcome.samples is not None:
                collection.add(outcome.number, flite.name, outcome.reading, outcome.samples)
                left_out_in_a_row = 0
                added()
                continue
            tally.left_out += 1
            left_out_in_a_row += 1
            if left_out_in_a_row == _TOO_MANY_LEFT_OUT:
                raise SynthesisError(f"{left_out_in_a_row} sentences in a row came out wrong: {outcome.refused[-1]}")
    return tally


def _say(flite: Flite, readings: Readings, number: int) -> _Outcome:
    """Synthesize a clip; after a failure, draw the voice again."""
    refused: list[str] = []
    for attempt in range(_ATTEMPTS):
        reading = readings.draw(number, attempt)
        try:
            samples = flite.say(reading.voice, reading.manner, reading.sentence)
            check(samples, reading.sentence)
            return _Outcome(number, reading, samples, refused)
        except UnusableSpeechError as error:
            refused.append(str(error))
    return _Outcome(number, reading, None, refused)
