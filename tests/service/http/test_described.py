"""The service does what its OpenAPI document says, whatever is sent (schemathesis makes it up from the document)."""

import contextlib
import http.server
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from service.engine.stub import SAMPLE_RATE
from service.http.access import digest
from tests.service.serving import serving, tone, wav

KEY, ADMIN_KEY = "sk-steno-one", "sk-steno-admin"
CLIP = wav(tone(SAMPLE_RATE // 8))
# Made-up recordings are no audio and made-up models do not exist: what fits the document may still be refused.
# Keys are for test_access.py: this check would send ours again and call it none.
UNSAYABLE = [positive_data_acceptance, ignored_auth]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where a recording is that requests name by its URL."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "clip.wav").write_bytes(CLIP)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def service(store, tmp_path_factory):
    keys = {"api_keys": f"me:{digest(KEY)}", "admin_keys": f"root:{digest(ADMIN_KEY)}"}
    folder = tmp_path_factory.mktemp("jobs")
    with serving(**keys, jobs_folder=folder, url_hosts=store, job_retention_seconds=1.0) as served:
        yield served


def key_of(case: schemathesis.Case) -> str | None:
    """The kind of key that opens an operation."""
    if case.path.startswith("/v1/admin/"):
        return ADMIN_KEY
    return KEY if case.path.startswith("/v1/") else None


@pytest.fixture(scope="module")
def ask(service):
    """Send a case, check the answer against the document."""
    with requests.Session() as session:
        session.trust_env = False

        def send(case: schemathesis.Case, *, with_key: str | None = "right", is_valid: bool = False) -> int:
            key = key_of(case) or KEY
            if with_key == "other":
                key = KEY if key == ADMIN_KEY else ADMIN_KEY
            answer = case.call_and_validate(
                base_url=f"http://127.0.0.1:{service.server.port}",
                session=session,
                headers={"authorization": f"Bearer {key}"} if with_key else {},
                # Where a recording was put in, it does not know any longer that the case is a valid one.
                excluded_checks=[*UNSAYABLE, negative_data_rejection] if is_valid else UNSAYABLE,
            )
            assert answer.status_code < 500
            assert answer.headers["x-request-id"]
            if with_key != "right" and key_of(case):
                assert answer.status_code in (401, 405)
            return answer.status_code

        yield send


def check_all(service, ask: Callable[..., int], examples: int) -> None:
    document = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) == 16
    for operation in operations:
        for mode in GenerationMode:

            @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def holds(case: schemathesis.Case) -> None:
                ask(case)

            with contextlib.suppress(Unsatisfiable):  # an operation without input cannot be asked wrongly
                holds()


def recording_in(case: schemathesis.Case, store: str) -> schemathesis.Case:
    """Put a recording into a case, and leave out what only some values of many can be: a model, a language, a URL."""
    if isinstance(case.body, dict):
        made_up = ("model", "language", "target_language", "decoder", "webhook", "webhook_secret", "file", "url")
        case.body = {name: value for name, value in case.body.items() if name not in made_up}
        case.body |= {"url": f"{store}/clip.wav"} if case.media_type == "application/json" else {"file": CLIP}
    else:
        case.body = CLIP
    return case


def check_recordings(service, ask: Callable[..., int], store: str, examples: int) -> Counter:
    """Send recordings in every way with made-up options; return how often each way was answered with success."""
    document = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    operations = [result.ok() for result in document.get_all_operations()]
    accepted: Counter = Counter()
    for operation in operations:
        if not operation.path.startswith("/v1/audio/") or not operation.body:
            continue

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
            with_key=st.sampled_from(["right", "right", "right", "other", None]),
        )
        def holds(case: schemathesis.Case, with_key: str | None) -> None:
            status = ask(recording_in(case, store), with_key=with_key, is_valid=True)
            accepted[case.path, case.media_type] += status in (200, 202)

        holds()
    return accepted


def test_keys_of_the_other_kind_and_none_open_nothing(service, ask):
    document = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    for operation in (result.ok() for result in document.get_all_operations()):

        @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def holds(case: schemathesis.Case) -> None:
            for with_key in ("other", None):
                ask(case, with_key=with_key)

        holds()


WAYS = {
    ("/v1/audio/transcriptions", "multipart/form-data"),
    ("/v1/audio/transcriptions", "application/json"),
    ("/v1/audio/transcriptions", "application/octet-stream"),
    ("/v1/audio/jobs", "multipart/form-data"),
}


@pytest.mark.long
def test_recordings_with_options_are_answered_as_described(service, ask, store):
    accepted = check_recordings(service, ask, store, examples=500)

    assert {way for way, count in accepted.items() if count > 10} >= WAYS, accepted


def test_what_is_sent_is_answered_as_described(service, ask):
    check_all(service, ask, examples=10)


@pytest.mark.long
def test_a_thousand_of_each_are_answered_as_described(service, ask):
    check_all(service, ask, examples=1000)


def test_the_service_lives_and_holds_nothing_afterwards(service):
    assert service.client.get("/readyz").status_code == 200
    assert service.server.dispatcher.admission.requests == 0
    assert service.server.dispatcher.admission.stored_bytes == 0
