"""`steno serve` as an operator runs it, with real checkpoints: its answers equal the model's offline."""

import concurrent.futures
import os
import signal
import subprocess

import numpy as np
import pytest
import soundfile
import torch

from models import load_model
from models.device.resources import processors
from tests.audio.media_files import media
from tests.service.serving import ServerProcess, form, metric, steno_serve, wait_for, wav

RATE = 16_000
# These tests compare with a model that is given each recording whole.
WHOLE = ("--max-utterance-seconds", "120")


@pytest.fixture(scope="module")
def checkpoint(golden):
    return golden / "hybrid-tdt-ctc-bpe" / "model.nemo"


@pytest.fixture(scope="module")
def speech(golden):
    """All golden clips in a row, about 30 s of synthetic speech."""
    clips = [soundfile.read(path, dtype="float32")[0] for path in sorted((golden / "clips").glob("*.wav"))]
    return np.concatenate(clips)


def mixed_lengths(speech: np.ndarray, count: int) -> list[np.ndarray]:
    """Recordings of 0.2 s to 60 s cut from speech, no two alike."""
    random = np.random.default_rng(11)
    long = np.concatenate([speech, speech[::-1], speech])
    seconds = np.geomspace(0.2, 60, count)
    random.shuffle(seconds)
    starts = random.integers(0, len(speech) // 2, count)
    return [long[start : start + int(length * RATE)] for start, length in zip(starts, seconds, strict=True)]


def post(service: ServerProcess, samples: np.ndarray):
    return service.client.post("/v1/audio/transcriptions", **form(wav(samples)))


def waiting(service: ServerProcess) -> int:
    """Recordings that the service has accepted and decoded: queued, or with the engine."""
    text = service.client.get("/metrics").text
    return int(metric(text, "steno_queue_depth") + metric(text, "steno_queue_wait_seconds_count"))


def post_while_engine_is_held(service: ServerProcess, recordings, pool) -> list[concurrent.futures.Future]:
    """Send every recording while the engine is stopped; return when all have been accepted."""
    before = waiting(service)
    service.signal_engine(signal.SIGSTOP)
    answers = [pool.submit(post, service, samples) for samples in recordings]
    wait_for(lambda: waiting(service) - before == len(recordings))
    return answers


@pytest.mark.slow
def test_no_process_of_a_service_imports_from_the_folder_that_it_was_started_in(tmp_path, monkeypatch):
    for name in ("audio", "models", "msgspec", "numpy", "service", "uvloop"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('another {name}')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    with steno_serve(tmp_path / "log", "--http-processes", "2") as service:
        video = form(media(np.zeros((1, 48_000)), 48_000, "webm", "libopus"))
        answer = service.client.post("/v1/audio/transcriptions", **video)

    assert answer.status_code == 200, answer.text


@pytest.mark.slow
def test_mixed_uploads_at_once_are_answered_like_offline_in_full_batches(checkpoint, speech, tmp_path):
    recordings = mixed_lengths(speech, 64)
    offline = [hypothesis.text for hypothesis in load_model(str(checkpoint)).transcribe(recordings)]

    with steno_serve(tmp_path / "log", "--model", str(checkpoint), "--batch-seconds", "360", *WHOLE) as service:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            answers = post_while_engine_is_held(service, recordings, pool)
            service.signal_engine(signal.SIGCONT)
            served = [answer.result() for answer in answers]
        exposition = service.client.get("/metrics").text

    assert [answer.status_code for answer in served] == [200] * 64
    assert [answer.json()["text"] for answer in served] == offline
    assert metric(exposition, "steno_batch_items_sum") / metric(exposition, "steno_batch_items_count") > 4
    padding = metric(exposition, "steno_batch_padding_seconds_total")
    audio = metric(exposition, "steno_batch_audio_seconds_total")
    assert audio == pytest.approx(sum(map(len, recordings)) / RATE)
    assert padding / (padding + audio) < 0.25


@pytest.mark.slow
def test_a_killed_engine_loses_nothing_and_a_second_kill_is_a_typed_error(checkpoint, speech, tmp_path):
    recordings = [speech[index * 4000 : index * 4000 + RATE * 2] for index in range(50)]
    offline = [hypothesis.text for hypothesis in load_model(str(checkpoint)).transcribe(recordings)]

    with (
        steno_serve(tmp_path / "log", "--model", str(checkpoint), *WHOLE) as service,
        concurrent.futures.ThreadPoolExecutor(50) as pool,
    ):
        answers = post_while_engine_is_held(service, recordings, pool)
        first = service.engine_pid()
        os.kill(first, signal.SIGKILL)
        served = [answer.result() for answer in answers]

        assert [answer.status_code for answer in served] == [200] * 50
        assert [answer.json()["text"] for answer in served] == offline
        assert service.engine_pid() != first

        (asked,) = post_while_engine_is_held(service, [np.tile(speech, 4)[: 115 * RATE]], pool)
        ready = len(service.events("model ready"))
        service.signal_engine(signal.SIGKILL)
        wait_for(lambda: len(service.events("model ready")) > ready)
        service.signal_engine(signal.SIGKILL)  # it has been given the recording, and takes a while over it
        lost = asked.result()

        assert lost.status_code == 503
        assert lost.json()["error"]["code"] == "engine_lost"
        service.wait_ready()
        assert post(service, recordings[0]).json()["text"] == offline[0]


@pytest.mark.slow
def test_when_one_of_two_engines_is_killed_the_other_gives_the_offline_transcripts(checkpoint, speech, tmp_path):
    recordings = [speech[index * 4000 : index * 4000 + RATE * 2] for index in range(50)]
    offline = [hypothesis.text for hypothesis in load_model(str(checkpoint)).transcribe(recordings)]

    with (
        steno_serve(tmp_path / "log", "--model", str(checkpoint), "--device", "cpu:2", *WHOLE) as service,
        concurrent.futures.ThreadPoolExecutor(50) as pool,
    ):
        wait_for(lambda: len(service.events("model ready")) == 2)
        victim, other = (event["pid"] for event in service.events("engine started"))
        os.kill(victim, signal.SIGSTOP)
        os.kill(other, signal.SIGSTOP)
        answers = [pool.submit(post, service, samples) for samples in recordings]
        wait_for(lambda: waiting(service) == len(recordings))
        os.kill(victim, signal.SIGKILL)
        os.kill(other, signal.SIGCONT)
        served = [answer.result() for answer in answers]
        wait_for(lambda: len(service.events("model ready")) == 3)

        assert service.metric("steno_engine_up") == 2

    assert [answer.json()["text"] for answer in served] == offline


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="auto is the GPU then")
def test_a_small_model_has_an_engine_for_each_processor_unless_told_otherwise(checkpoint, speech, tmp_path):
    recordings = mixed_lengths(speech, 12)
    offline = [hypothesis.text for hypothesis in load_model(str(checkpoint)).transcribe(recordings)]

    with (
        steno_serve(tmp_path / "log", "--model", str(checkpoint), "--device", "auto", *WHOLE) as service,
        concurrent.futures.ThreadPoolExecutor(12) as pool,
    ):
        engines = min(processors(), 4)
        wait_for(lambda: len(service.events("model ready")) == engines)
        served = list(pool.map(lambda samples: post(service, samples), recordings))

        assert service.metric("steno_engine_up") == engines

    assert [answer.json()["text"] for answer in served] == offline


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--model {broken}", "broken.nemo"),
        ("--language-model nowhere/none.ngrams", "steno serve: nowhere/none.ngrams: no such file"),
        pytest.param(
            "--model m={canary} --language-identifier i={canary}",
            "EncDecSpeakerLabelModel, which language identifiers are",
            marks=pytest.mark.long,
        ),
        pytest.param("--model i={identifier}", "EncDecSpeakerLabelModel transcribes nothing", marks=pytest.mark.long),
        pytest.param(
            "--model m={canary} --language-identifier i=nowhere.nemo",
            "the language identifier",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_used_ends_the_service_with_one_line(golden, tmp_path, flags, told):
    broken = tmp_path / "broken.nemo"
    broken.write_bytes(b"not an archive")
    canary, identifier = (golden / name / "model.nemo" for name in ("canary-small", "identifier-statistics"))
    given = flags.format(broken=broken, canary=canary, identifier=identifier).split()

    ended = subprocess.run(
        [os.sys.executable, "-m", "cli", "serve", "--port", "0", "--log-format", "json", *given],
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 2
    said = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert len(said) == 1
    assert told in said[0]
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_sigterm_answers_what_was_accepted_and_exits_with_success(checkpoint, speech, tmp_path):
    with (
        steno_serve(tmp_path / "log", "--model", str(checkpoint)) as service,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        answers = post_while_engine_is_held(service, [speech[: 3 * RATE]] * 8, pool)
        service.process.send_signal(signal.SIGTERM)
        wait_for(lambda: bool(service.events("draining")))
        service.signal_engine(signal.SIGCONT)

        assert [answer.result().status_code for answer in answers] == [200] * 8
        assert service.process.wait(30) == 0


@pytest.mark.slow
def test_logs_hold_no_words_and_no_file_names(checkpoint, speech, tmp_path):
    with steno_serve(tmp_path / "log", "--model", str(checkpoint)) as service:
        answer = service.client.post(
            "/v1/audio/transcriptions", **form(wav(speech[: 8 * RATE]), "secret-name.wav", prompt="secret-prompt")
        )
        text = answer.json()["text"]

    logged = (tmp_path / "log").read_text()
    assert len(text) > 10
    assert text not in logged
    assert "secret" not in logged
