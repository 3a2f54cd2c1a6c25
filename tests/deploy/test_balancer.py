"""Two real replicas behind the balancer of docker-compose.yml: clients do not notice when one of them dies."""

import threading
from collections import Counter
from typing import Self

import httpx
import numpy as np
import openai
import pytest
import soundfile

from tests.deploy.fleet import ROOT, fleet
from tests.service.serving import form, wait_for

pytestmark = [pytest.mark.long, pytest.mark.program("haproxy")]

SAMPLE = ROOT / "samples" / "austen.flac"
FIRST, SECOND = "127.0.0.21", "127.0.0.22"


class Clients:
    """Several of OpenAI's clients at once, with their ordinary retries, until they are stopped."""

    def __init__(self, url: str, number: int) -> None:
        self.texts: Counter[str] = Counter()
        self.errors: list[Exception] = []
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(number)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def answered_more(self, number: int) -> None:
        """Wait for this many more answers."""
        before = self.texts.total()
        wait_for(lambda: self.texts.total() >= before + number or bool(self.errors))

    def _ask(self) -> None:
        http = httpx.Client(trust_env=False)
        with openai.OpenAI(base_url=f"{self._url}/v1", api_key="none", http_client=http) as client:
            while not self._stop.is_set():
                try:
                    answer = client.audio.transcriptions.create(model="whisper-1", file=SAMPLE)
                    self.texts[answer.text] += 1
                except openai.OpenAIError as error:
                    self.errors.append(error)


def test_killing_and_restarting_replicas_loses_nothing_that_a_client_notices(tmp_path):
    with fleet(tmp_path, FIRST, SECOND) as served, Clients(served.url, 8) as clients:
        clients.answered_more(20)
        served.kill(FIRST)
        clients.answered_more(20)
        served.start(FIRST)
        clients.answered_more(20)
        for address in (FIRST, SECOND):  # a rolling restart
            assert served.stop(address) == 0
            clients.answered_more(10)
            served.start(address)
            clients.answered_more(20)
        shares = [served.replica(one).metric("steno_audio_seconds_total") for one in (FIRST, SECOND)]

    assert clients.errors == []
    assert len(clients.texts) == 1
    assert min(shares) > 0


def test_an_upload_of_a_gibibyte_passes(tmp_path):
    frames = (1 << 30) // (8 * 4) - 1000
    recording = tmp_path / "large.wav"
    with soundfile.SoundFile(recording, "w", 192_000, 8, "FLOAT", format="WAV") as file:
        silence = np.zeros((1 << 20, 8), np.float32)
        for start in range(0, frames, len(silence)):
            file.write(silence[: frames - start])

    with fleet(tmp_path, FIRST) as served, recording.open("rb") as body:
        answer = httpx.post(f"{served.url}/v1/audio/transcriptions", **form(body), timeout=600, trust_env=False)

    assert recording.stat().st_size > 0.99 * (1 << 30)
    assert (answer.status_code, answer.json()["usage"]["seconds"]) == (200, pytest.approx(frames / 192_000, rel=1e-3))


def test_a_recording_of_two_hours_passes(tmp_path):
    samples, rate = soundfile.read(SAMPLE, dtype="float32")
    repeats = int(7200 * rate / len(samples)) + 1
    recording = tmp_path / "long.flac"
    with soundfile.SoundFile(recording, "w", rate, 1) as file:
        for _ in range(repeats):
            file.write(samples)
    words = SAMPLE.with_suffix(".txt").read_text(encoding="utf-8").split()

    with fleet(tmp_path, FIRST) as served, recording.open("rb") as body:
        answer = httpx.post(f"{served.url}/v1/audio/transcriptions", **form(body), timeout=900, trust_env=False)

    assert answer.status_code == 200
    assert len(answer.json()["text"].split()) == pytest.approx(repeats * len(words), rel=0.02)


def test_a_balancer_without_replicas_says_so(tmp_path):
    with fleet(tmp_path, FIRST) as served, httpx.Client(base_url=served.url, trust_env=False) as client:
        assert client.get("/healthz").status_code == 200
        served.stop(FIRST)
        wait_for(lambda: client.get("/healthz").status_code == 503)
        answer = client.get("/v1/models")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "5"
