"""Many files are transcribed in order, a few batches at a time."""

import itertools
import os
import shutil
import sys
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.limits import AudioLimits
from audio.segment.cuts import CutBlock, cuts
from bulk.errors import JobError
from bulk.file_transcripts import Failed, Options, Transcribed, transcribe_files
from models import Transcript
from tests.audio.media_files import media
from tests.audio.sound_files import encoded
from transcripts.transcript import Word

CPU = torch.device("cpu")


@dataclass
class LengthModel:
    """Transcribes a recording by its length, and notes how many seconds it is given at a time."""

    sample_rate: int = 8000
    seconds_per_frame: float = 0.04
    piece_seconds: float | None = None
    language_identifier: None = None
    languages: None = None
    device: torch.device = CPU
    given: list[float] = field(default_factory=list)

    def transcribe(self, pcm, *, decoder, batch_seconds, **_):
        self.given.append(sum(map(len, pcm)) / self.sample_rate)
        return [Transcript(str(len(samples)), [], [], []) for samples in pcm]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(800, 24_000), max_size=40), st.floats(0.1, 3))
def test_files_come_back_in_order_and_never_too_many_at_once(tmp_path_factory, lengths, batch_seconds):
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / str(number) for number in range(len(lengths))]
    for path, length in zip(paths, lengths, strict=True):
        path.write_bytes(b"damaged" if length is None else encoded(np.zeros(length), 8000))
    model = LengthModel()

    options = Options(batch_seconds=batch_seconds, limits=AudioLimits(max_seconds=3), utterance_seconds=3)
    outcomes = list(transcribe_files(model, map(str, paths), options))

    for outcome, length in zip(outcomes, lengths, strict=True):
        if length is None:
            assert isinstance(outcome, Failed)
        else:
            assert outcome == Transcribed(length / 8000, Transcript(str(length), [], [], []))
    assert all(seconds < 4 * batch_seconds + 3 for seconds in model.given)


@pytest.mark.parametrize(("device", "seconds"), [("cpu", 240), ("meta", 1920)])
def test_a_batch_suits_the_device(tmp_path, device, seconds):
    (tmp_path / "short").write_bytes(encoded(np.zeros(8000), 8000))
    given = []

    class NotingModel(LengthModel):
        def transcribe(self, pcm, *, batch_seconds, **options):
            given.append(batch_seconds)
            return super().transcribe(pcm, batch_seconds=batch_seconds, **options)

    list(transcribe_files(NotingModel(device=torch.device(device)), [str(tmp_path / "short")], Options()))

    assert given == [seconds]


def test_nothing_is_decoded_far_ahead_of_the_model(tmp_path):
    taken = []

    def paths():
        for number in range(100):
            path = tmp_path / str(number)
            path.write_bytes(encoded(np.zeros(8000), 8000))
            taken.append(path)
            yield str(path)

    outcomes = transcribe_files(LengthModel(), paths(), Options(batch_seconds=1))
    next(outcomes)
    taken_for_the_first = len(taken)
    outcomes.close()

    assert taken_for_the_first < 20


def test_a_pipe_is_a_file_too():
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(encoded(np.zeros(8000), 8000))

    (outcome,) = transcribe_files(LengthModel(), [f"/dev/fd/{reader}"], Options())
    os.close(reader)

    assert outcome.transcript.text == "8000"


@pytest.fixture
def outcomes_without_decoding_processes(tmp_path, monkeypatch):
    """The outcomes of a file that needs no decoding process, one that needs it, and one that does not."""
    (tmp_path / "a.wav").write_bytes(encoded(np.zeros(8000), 8000))
    (tmp_path / "b.webm").write_bytes(media(np.zeros(48_000), 48_000, "webm", "libopus"))
    paths = [str(tmp_path / name) for name in ("a.wav", "b.webm", "a.wav")]
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    return transcribe_files(LengthModel(), paths, Options(batch_seconds=0.1, threads=1))


def test_a_machine_that_starts_no_decoding_process_ends_the_job(outcomes_without_decoding_processes):
    assert next(outcomes_without_decoding_processes).transcript.text == "8000"
    with pytest.raises(JobError, match="does not start"):
        next(outcomes_without_decoding_processes)


def test_files_that_are_no_longer_wanted_raise_nothing(outcomes_without_decoding_processes):
    next(outcomes_without_decoding_processes)
    outcomes_without_decoding_processes.close()


@dataclass
class WordModel(LengthModel):
    """Finds one word, "x", in every piece, from 0.1 s to 0.2 s."""

    sample_rate: int = 16_000
    seconds_per_frame: float = 0.1

    def transcribe(self, pcm, *, decoder, batch_seconds, **_):
        self.given += [len(samples) / self.sample_rate for samples in pcm]
        one_word = Transcript("x", [7], [0.5], [Word("x", 0.1, 0.2, 0.5, (0, 1))], [1])
        nothing = Transcript("", [], [], [], [])
        return [one_word if len(samples) else nothing for samples in pcm]


def outcomes_of(model, paths, utterance_seconds):
    options = Options(batch_seconds=5, utterance_seconds=utterance_seconds)
    return list(transcribe_files(model, map(str, paths), options))


def test_a_long_file_is_cut_and_joined_with_its_own_times_among_others(tmp_path, golden):
    voice, rate = soundfile.read(golden / "clips" / "rms-6s.wav")
    long = np.concatenate([np.zeros(3 * rate), voice, np.zeros(4 * rate), voice, np.zeros(2 * rate)])
    paths = [tmp_path / "short", tmp_path / "long", tmp_path / "silent", tmp_path / "another"]
    for path, samples in zip(paths, [voice[:rate], long, np.zeros(30 * rate), voice[:rate]], strict=True):
        path.write_bytes(encoded(samples, rate))
    model = WordModel()

    short, cut, silent, another = outcomes_of(model, paths, utterance_seconds=8.0)

    assert max(model.given) <= 8.0
    assert short.transcript == another.transcript
    assert (silent.transcript.text, silent.seconds) == ("", 30.0)
    assert cut.seconds == len(long) / rate
    starts = [word.start - 0.1 for word in cut.transcript.words]
    assert len(starts) >= 2
    assert 2.5 < starts[0] < 4.0
    assert all(3 <= start <= 9.2 or 13 <= start <= 19.2 for start in (start + 0.5 for start in starts))
    assert cut.transcript.text == " ".join(["x"] * len(starts))
    assert [word.token_span for word in cut.transcript.words] == [(n, n + 1) for n in range(len(starts))]
    assert cut.transcript.frames == [round(start / 0.1) + 1 for start in starts]


def test_quiet_pieces_of_a_long_file_are_raised_and_a_short_file_stays_as_it_is(tmp_path, golden):
    voice, rate = soundfile.read(golden / "clips" / "rms-6s.wav")
    for name, samples in {"short": voice, "long": np.concatenate([voice, np.zeros(4 * rate), voice])}.items():
        (tmp_path / name).write_bytes(encoded(samples / 100, rate))

    class Loudest(WordModel):
        def transcribe(self, pcm, **options):
            loudest.extend(float(np.abs(samples).max()) for samples in pcm)
            return super().transcribe(pcm, **options)

    loudest = []
    outcomes_of(Loudest(), [tmp_path / "short", tmp_path / "long"], utterance_seconds=8.0)

    short, *pieces = sorted(loudest)
    assert short == pytest.approx(np.abs(voice).max() / 100, abs=1e-4)
    assert len(pieces) >= 2
    assert min(pieces) > 0.1


def test_files_are_cut_while_the_model_computes(golden, monkeypatch):
    cut = threading.Semaphore(0)

    def noted(*args):
        yield from cuts(*args)
        cut.release()

    class PatientModel(LengthModel):
        def transcribe(self, pcm, **options):
            assert all(cut.acquire(timeout=60) for _ in range(3))  # those of the later batches too
            cut.release(3)
            return super().transcribe(pcm, **options)

    monkeypatch.setattr("audio.segment.cuts.cuts", noted)
    options = Options(batch_seconds=0.1, utterance_seconds=4)

    outcomes = list(transcribe_files(PatientModel(), 3 * [str(golden / "clips" / "rms-6s.wav")], options))

    assert len({outcome.transcript.text for outcome in outcomes}) == 1


def test_the_next_files_are_gathered_while_the_model_computes(tmp_path):
    (tmp_path / "short").write_bytes(encoded(np.zeros(8000), 8000))
    gathered = threading.Event()

    def paths():
        for number in range(6):
            if number == 3:  # three are decoded ahead of the first
                gathered.set()
            yield str(tmp_path / "short")

    class PatientModel(LengthModel):
        def transcribe(self, pcm, **options):
            assert gathered.wait(60)
            return super().transcribe(pcm, **options)

    model = PatientModel()
    outcomes = list(transcribe_files(model, paths(), Options(batch_seconds=0.1, threads=1)))

    assert len(outcomes) == len(model.given) == 6


def test_files_that_are_no_longer_wanted_are_not_cut_to_the_end(tmp_path, monkeypatch):
    (tmp_path / "short").write_bytes(encoded(np.zeros(8000), 8000))
    (tmp_path / "long").write_bytes(encoded(np.zeros(40_000), 8000))
    monkeypatch.setattr("audio.segment.cuts.cuts", lambda *_: itertools.repeat(CutBlock([], np.empty(0, np.float32))))

    outcomes = transcribe_files(
        LengthModel(),
        [str(tmp_path / name) for name in ("short", "short", "long")],
        Options(batch_seconds=0.1, utterance_seconds=4),
    )
    next(outcomes)
    outcomes.close()
