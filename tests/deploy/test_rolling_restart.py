"""A rolling restart of two replicas behind the balancer of docker-compose.yml, with clients that try nothing twice."""

import threading
from collections import Counter

import httpx
import pytest

from benchmarks.stub_engine import STUB_ENGINE
from tests.deploy.fleet import fleet
from tests.service.serving import form, tone, wait_for, wav

FIRST, SECOND = "127.0.0.31", "127.0.0.32"
REQUESTS = 1000


@pytest.mark.slow
@pytest.mark.program("haproxy")
def test_a_rolling_restart_refuses_no_request(tmp_path):
    answers: Counter[str] = Counter()
    is_over = threading.Event()
    body = wav(tone(16_000))
    with fleet(tmp_path, FIRST, SECOND, engine=STUB_ENGINE, STENO_MODEL="stub.nemo") as served:

        def ask() -> None:
            with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as client:
                while not is_over.is_set():
                    try:
                        answer = client.post("/v1/audio/transcriptions", **form(body))
                        answers["200" if answer.status_code == 200 else answer.text] += 1
                    except httpx.HTTPError as error:
                        answers[repr(error)] += 1

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            for address in (SECOND, FIRST):  # first the one that the balancer has hardly asked
                assert served.stop(address) == 0
                served.start(address, engine=STUB_ENGINE, STENO_MODEL="stub.nemo")
            wait_for(lambda: answers.total() >= REQUESTS)
        finally:
            is_over.set()
            for client in clients:
                client.join()

    assert answers == {"200": answers.total()}
