"""Utterances are divided among threads, and come back in order."""

import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from bulk.errors import JobError
from bulk.parallel import ParallelTranscriber, balanced
from models import Float16OverflowError, Transcript, load_model
from transcripts.prompt import Prompt


@given(st.lists(st.integers(0, 640_000), max_size=60), st.integers(1, 4))
def test_every_utterance_is_in_one_share_and_no_thread_idles_long(lengths, most):
    shares = balanced(lengths, most)

    assert sorted(index for share in shares for index in share) == list(range(len(lengths)))
    assert 1 <= len(shares) <= most
    sums = [sum(lengths[index] for index in share) for share in shares]
    assert max(sums) <= 1.1 * sum(sums) / len(sums)


def test_many_utterances_of_like_length_have_as_many_shares_as_there_may_be():
    assert len(balanced(range(100_000, 101_000), 4)) == 4


class NotingModel:
    """Notes the threads that it is called from, and what it is given."""

    sample_rate = 1000

    def __init__(self, device="cpu", error=None):
        self.device, self.error = torch.device(device), error
        self.calls = []

    def transcribe(self, pcm, *, language, batch_seconds, **_):
        if self.error:
            raise self.error
        self.calls.append((threading.current_thread(), torch.get_num_threads(), batch_seconds))
        return [
            Transcript(f"{len(samples)} {spoken}", [], [], []) for samples, spoken in zip(pcm, language, strict=True)
        ]


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def transcribed(model, pcm, languages):
    with ParallelTranscriber(model, None, Prompt(), batch_seconds=240) as transcribe:
        return [transcript.text for transcript in transcribe(pcm, languages)]


@pytest.mark.usefixtures("four_threads")
def test_threads_share_the_processors_and_the_memory_of_a_batch():
    model = NotingModel()
    lengths = range(1000, 1040)

    texts = transcribed(model, [np.zeros(length, np.float32) for length in lengths], ["en", "de"] * 20)

    assert texts == [f"{length} {language}" for length, language in zip(lengths, ["en", "de"] * 20, strict=True)]
    assert [(threads, seconds) for _, threads, seconds in model.calls] == [(1, 60)] * 4
    assert threading.current_thread() not in {thread for thread, *_ in model.calls}
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("device", "lengths"), [("cpu", [1000]), ("cpu", [1000, 100]), ("meta", range(1000, 1040))])
def test_one_utterance_and_a_gpu_have_the_thread_of_the_caller(device, lengths):
    model = NotingModel(device)

    transcribed(model, [np.zeros(length, np.float32) for length in lengths], ["en"] * len(lengths))

    assert model.calls == [(threading.current_thread(), 4, 240)]


class SmallModel(NotingModel):
    """Has memory for batches of up to 60 s."""

    def transcribe(self, pcm, *, batch_seconds, **options):
        lengths = [len(samples) / self.sample_rate for samples in pcm]
        if max(min(batch_seconds, sum(lengths)), *lengths) > 60:
            raise torch.OutOfMemoryError
        return super().transcribe(pcm, batch_seconds=batch_seconds, **options)


def test_batches_that_do_not_fit_the_memory_are_halved_and_so_are_those_after_them():
    model = SmallModel("meta")
    clips = [np.zeros(20_000, np.float32)] * 20

    with ParallelTranscriber(model, None, Prompt(), batch_seconds=240) as transcribe:
        assert len(transcribe(clips, ["en"] * 20)) == len(transcribe(clips, ["en"] * 20)) == 20

    assert [seconds for *_, seconds in model.calls] == [60, 60]


def test_an_utterance_that_does_not_fit_the_memory_alone_is_an_error():
    with pytest.raises(torch.OutOfMemoryError):
        transcribed(SmallModel("meta"), [np.zeros(61_000, np.float32)], ["en"])


@pytest.mark.usefixtures("four_threads")
def test_an_error_of_one_thread_is_raised():
    model = NotingModel(error=Float16OverflowError("too large"))

    with pytest.raises(JobError, match="too large"):
        transcribed(model, [np.zeros(1000, np.float32)] * 40, [None] * 40)


@pytest.mark.usefixtures("four_threads")
def test_an_error_of_one_thread_ends_the_others_at_once():
    begun = threading.Barrier(4)

    class EndlessModel(NotingModel):
        def transcribe(self, pcm, **_):
            if begun.wait() == 0:
                raise KeyboardInterrupt
            while True:
                sum(range(100))

    with pytest.raises(KeyboardInterrupt):
        transcribed(EndlessModel(), [np.zeros(1000, np.float32)] * 40, [None] * 40)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    ("name", "options"),
    [("bundled", {}), ("hybrid-tdt-ctc-bpe", {}), ("canary-small", {}), ("canary-small", {"beam": 3})],
)
def test_a_model_finds_the_same_on_threads_as_alone(golden, name, options):
    model = load_model(name if name == "bundled" else golden / name / "model.nemo", **options)
    voice, _ = soundfile.read(Path(__file__).parents[2] / "samples" / "austen.flac", dtype="float32")
    pieces = [voice[start : start + length] for start in range(0, 64_000, 8000) for length in (9000, 17_000, 32_000)]
    alone = [transcript.text for transcript in model.transcribe(pieces)]

    assert transcribed(model, pieces, [None] * len(pieces)) == alone
    assert any(alone)
