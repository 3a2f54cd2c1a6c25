"""Faults of the system under the service; those of engines, decoders and clients stand with what they are faults of."""

import contextlib
import os
import resource
import socket
import tempfile

import httpx

from service.engine.stub import SAMPLE_RATE
from tests.service.serving import form, serving, steno_serve, tone, wait_for, wav

CLIP = wav(tone(SAMPLE_RATE))


def test_an_upload_for_which_the_disk_has_no_room_is_refused_for_now(monkeypatch):
    with serving() as service:
        with monkeypatch.context() as patched:
            patched.setattr(tempfile, "tempdir", "/proc")  # where nobody can write
            answer = service.post(**form(bytes(3_000_000)))

        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "60"
        assert service.server.dispatcher.admission.stored_bytes == 0
        assert service.post(**form(CLIP)).status_code == 200


def test_a_service_out_of_file_descriptors_refuses_and_recovers(golden, tmp_path):
    model = str(golden / "quartznet-small" / "model.nemo")
    with steno_serve(tmp_path / "log", "--model", model) as service:
        pid, url = service.process.pid, service.client.base_url
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200
        used = len(os.listdir(f"/proc/{pid}/fd"))

        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, usual[1]))
        answer = service.client.post("/v1/audio/transcriptions", **form(CLIP))  # over the connection that it has
        with contextlib.ExitStack() as stack:
            for _ in range(20):  # nobody knows what becomes of those
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection((url.host, url.port), 5))
            still = service.client.get("/healthz")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)

        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert still.status_code == 200
        wait_for(lambda: httpx.get(url.join("/healthz"), trust_env=False).status_code == 200)
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200
