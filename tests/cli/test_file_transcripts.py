"""Many files are transcribed in order, a few batches at a time."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.limits import AudioLimits
from cli.file_transcripts import Failed, Transcribed, transcribe_files
from tests.audio.sound_files import encoded


@dataclass
class LengthModel:
    """Transcribes a recording by its length, and notes how many seconds it is given at a time."""

    sample_rate: int = 8000
    given: list[float] = field(default_factory=list)

    def transcribe(self, pcm, *, decoder, batch_seconds):
        self.given.append(sum(map(len, pcm)) / self.sample_rate)
        return [len(samples) for samples in pcm]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(800, 24_000), max_size=40), st.floats(0.1, 3))
def test_files_come_back_in_order_and_never_too_many_at_once(tmp_path_factory, lengths, batch_seconds):
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / str(number) for number in range(len(lengths))]
    for path, length in zip(paths, lengths, strict=True):
        path.write_bytes(b"damaged" if length is None else encoded(np.zeros(length), 8000))
    model = LengthModel()

    outcomes = list(
        transcribe_files(model, paths, decoder=None, batch_seconds=batch_seconds, limits=AudioLimits(max_seconds=3))
    )

    for outcome, length in zip(outcomes, lengths, strict=True):
        if length is None:
            assert isinstance(outcome, Failed)
        else:
            assert outcome == Transcribed(length / 8000, length)
    assert all(seconds < 4 * batch_seconds + 3 for seconds in model.given)


def test_nothing_is_decoded_far_ahead_of_the_model(tmp_path):
    taken = []

    def paths():
        for number in range(100):
            path = tmp_path / str(number)
            path.write_bytes(encoded(np.zeros(8000), 8000))
            taken.append(path)
            yield path

    outcomes = transcribe_files(LengthModel(), paths(), decoder=None, batch_seconds=1, limits=AudioLimits())
    next(outcomes)
    taken_for_the_first = len(taken)
    outcomes.close()

    assert taken_for_the_first < 20
