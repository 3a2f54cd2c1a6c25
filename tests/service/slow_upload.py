"""Uploads that tests send piece by piece."""

import http.client
import json
from urllib.parse import urlencode

import numpy as np

from service.engine.stub import SAMPLE_RATE
from tests.service.serving import PATIENCE, ThreadedServer


def sound(seconds: float, rate: int = SAMPLE_RATE) -> np.ndarray:
    """Return noise, so that the stub's transcript of each piece differs."""
    return 0.1 * np.random.default_rng(1).standard_normal(int(seconds * rate)).astype(np.float32)


class Upload:
    """An upload that is sent piece by piece."""

    def __init__(self, service: ThreadedServer, body: bytes, content_type: str, key: str = "", **query: str):
        self.body = body
        self.sent = 0
        self.connection = http.client.HTTPConnection("127.0.0.1", service.server.port, timeout=PATIENCE)
        self.connection.putrequest("POST", "/v1/audio/transcriptions?" + urlencode(query))
        self.connection.putheader("Content-Type", content_type)
        self.connection.putheader("Authorization", f"Bearer {key}")
        self.connection.putheader("Content-Length", str(len(body)))
        self.connection.endheaders()

    def send(self, until: float = 1.0) -> "Upload":
        """Send the body up to this share of it."""
        stop = round(until * len(self.body))
        self.connection.send(self.body[self.sent : stop])
        self.sent = stop
        return self

    def answer(self) -> tuple[int, dict]:
        answered = self.connection.getresponse()
        body = answered.read()
        self.connection.close()
        return answered.status, json.loads(body)


def transcribed_seconds(service: ThreadedServer) -> float:
    return service.metric('steno_audio_seconds_total{outcome="ok"}')
