"""Recordings of every kind arrive at the engine, and one that crashes its decoder harms nothing else."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from audio.child_process import Confinement
from service.http import opening
from tests.audio.media_files import MEDIA, sample_of
from tests.audio.test_hostile_files import vorbis
from tests.audio.test_tracks import HIGH, LOW, NOTHING, film
from tests.service.serving import form, serving, tone, wav


@pytest.fixture(scope="module")
def service():
    with serving() as served:
        yield served


@pytest.mark.parametrize("name", ["live webm", "m4a", "ogg opus", "mp3", "amr"])
def test_a_recording_is_known_by_its_content_whatever_it_is_called(service, name):
    data = sample_of(name, lambda rate: tone(2 * rate))

    answer = service.post(**form(data, name="recording.wav"))

    assert answer.status_code == 200
    assert answer.json()["usage"]["seconds"] == pytest.approx(2, abs=0.05)
    assert service.metric(f'steno_audio_decode_total{{container="{MEDIA[name][4]}",result="ok"}}') >= 1


@pytest.mark.parametrize(("kind", "order"), [("audio/pcm", "<i2"), ("audio/l16", ">i2")])
def test_raw_samples_are_taken_as_their_type_says(service, kind, order):
    samples = np.full(24_000, 8192)
    file = ("raw", samples.astype(order).tobytes(), f"{kind};rate=16000;channels=1")

    answer = service.post(files={"file": file}, data={"model": "whisper-1"})

    assert answer.json()["text"] == service.post(**form(wav(samples / 2**15))).json()["text"]


def test_raw_samples_without_a_full_media_type_are_refused(service):
    answer = service.post(files={"file": ("raw", bytes(32_000), "audio/pcm")}, data={"model": "whisper-1"})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_format"


def test_a_file_that_its_decoder_cannot_finish_is_an_error_and_is_counted(monkeypatch):
    monkeypatch.setattr(opening, "Confinement", partial(Confinement, seconds=0.0001))
    with serving() as served:
        answer = served.post(**form(sample_of("webm", lambda rate: tone(10 * rate))))

        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_audio"
        assert "more than 0.0001 s" in answer.json()["error"]["message"]
        assert served.metric("steno_decode_crashes_total") == 1
        assert served.post(**form(wav(tone(16_000), subtype="PCM_16"))).status_code == 200


def test_a_file_that_crashes_its_decoders_costs_two_of_them_and_no_other_request(caplog):
    file = vorbis(1)
    with serving() as served:
        for _ in range(2):  # the second time, no decoder gets it
            answer = served.post(**form(file))

            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "decoder_crashed"
            assert served.metric("steno_decode_crashes_total") == 2
        assert served.post(**form(sample_of("webm", tone))).status_code == 200
    assert "decoding processes are not wholly confined" not in caplog.messages


@pytest.mark.slow
def test_decoders_that_are_killed_under_load_cost_no_answer(monkeypatch):
    upload = form(sample_of("webm", lambda rate: tone(5 * rate)))
    start, started, killed = subprocess.Popen, [], []

    def starting(command, **options):
        process = start(command, **options)
        if "audio.child" in command:
            started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", starting)
    with serving() as served, ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(served.post, **upload) for _ in range(24)]
        while len(killed) < 2:  # so one file loses two of three starts at most
            for process in started[len(killed) : 2]:
                killed.append(process)
                process.kill()

        assert [answer.result().status_code for answer in answers] == [200] * 24


def test_a_service_without_room_for_decoders_says_when_to_come_again(monkeypatch):
    with serving() as served:
        monkeypatch.setattr(sys, "executable", shutil.which("false"))

        answer = served.post(**form(sample_of("webm", tone)))

        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "decoding_unavailable"
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["x-should-retry"] == "true"
        assert served.post(**form(wav(tone(16_000), subtype="PCM_16"))).status_code == 200


def test_the_answer_says_which_track_of_how_many_was_transcribed(service):
    data = film(NOTHING, LOW, HIGH)

    def told(**asked):
        answer = service.post(**form(data, response_format="verbose_json", **asked)).json()
        return answer.get("track"), answer["tracks"]

    assert [told(), told(track="3"), told(multichannel="true")] == [(2, 3), (3, 3), (None, 3)]
    assert service.post(**form(data, track="4")).json()["error"]["code"] == "unsupported_format"
    assert service.post(**form(wav(tone(16_000)), track="2")).json()["error"]["code"] == "unsupported_format"
