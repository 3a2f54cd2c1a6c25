"""The service does what its OpenAPI document says, whatever is sent (schemathesis makes it up from the document)."""

import contextlib
import http.server
from collections import Counter
from collections.abc import Callable
from urllib.parse import unquote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from benchmarks.stub_engine import SAMPLE_RATE
from service.keys import digest
from tests.service.serving import listening, serving, tone, wav

KEY = "sk-steno-one"
CLIP = wav(tone(SAMPLE_RATE // 8))
# Made-up recordings are no audio and made-up models do not exist: what fits the document may still be refused. All is
# text in forms, so a made-up wrong value may arrive as a right one.
# Keys are for test_access.py: this check would send ours again and call it none.
UNSAYABLE = [positive_data_acceptance, negative_data_rejection, ignored_auth]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server of the recording that requests name by its URL."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "clip.wav").write_bytes(CLIP)

    class Folder(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

    with listening(Folder) as server:
        yield server.origin


@pytest.fixture(scope="module")
def service(store, tmp_path_factory):
    settings = {"jobs_folder": tmp_path_factory.mktemp("jobs"), "job_retention_seconds": 1.0, "url_hosts": store}
    with serving(api_keys=f"me:{digest(KEY)}", **settings) as served:
        yield served


@pytest.fixture(scope="module")
def ask(service):
    """Send a case, check the answer against the document."""
    with requests.Session() as session:
        session.trust_env = False

        def send(case: schemathesis.Case, *, key: str | None = KEY) -> int:
            answer = case.call(
                base_url=f"http://127.0.0.1:{service.server.port}",
                session=session,
                headers={"authorization": f"Bearer {key}"} if key else {},
            )
            case.validate_response(answer, excluded_checks=UNSAYABLE)
            assert answer.status_code < 500
            assert answer.headers["x-request-id"]
            if key != KEY and case.path.startswith("/v1/"):
                has_no_route = "\n" in unquote(case.formatted_path)
                assert answer.status_code in ((401, 404, 405) if has_no_route else (401, 405))
            return answer.status_code

        yield send


def check_all(service, ask: Callable[..., int], examples: int) -> None:
    document = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) == 11
    for operation in operations:
        for mode in GenerationMode:

            @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def holds(case: schemathesis.Case) -> None:
                ask(case)

            with contextlib.suppress(Unsatisfiable):  # an operation without input cannot be asked wrongly
                holds()


def recording_in(case: schemathesis.Case, store: str) -> schemathesis.Case:
    """Put a recording into a case, and leave out fields that accept few values: a model, a language, a URL."""
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
            key=st.sampled_from([KEY, KEY, KEY, "sk-unknown", None]),
        )
        def holds(case: schemathesis.Case, key: str | None) -> None:
            status = ask(recording_in(case, store), key=key)
            accepted[case.path, case.media_type] += status in (200, 202)

        holds()
    return accepted


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/jobs"])
def test_a_recording_and_its_options_are_described_in_every_way(service, path):
    content = service.client.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"]

    assert content.keys() == {"multipart/form-data", "application/json", "audio/*", "application/octet-stream"}
    form, by_url = (content[kind]["schema"]["properties"] for kind in ("multipart/form-data", "application/json"))
    assert form.keys() - {"file"} == by_url.keys() - {"url"}
    assert (form["subtitle_lines"]["minimum"], form["subtitle_lines"]["maximum"]) == (1, 8)
    assert ("stream" in form) is (path != "/v1/audio/jobs")
    assert ("webhook" in form) is (path == "/v1/audio/jobs")


@pytest.mark.slow
def test_unknown_keys_and_none_open_nothing(service, ask):
    document = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    for operation in (result.ok() for result in document.get_all_operations()):

        @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def holds(case: schemathesis.Case) -> None:
            for key in ("sk-unknown", None):
                ask(case, key=key)

        holds()


WAYS = {
    ("/v1/audio/transcriptions", "multipart/form-data"),
    ("/v1/audio/transcriptions", "application/json"),
    ("/v1/audio/transcriptions", "application/octet-stream"),
    ("/v1/audio/jobs", "multipart/form-data"),
    ("/v1/audio/jobs", "application/json"),
    ("/v1/audio/jobs", "application/octet-stream"),
}


@pytest.mark.long
def test_recordings_with_options_are_answered_as_described(service, ask, store):
    accepted = check_recordings(service, ask, store, examples=500)

    assert {way for way, count in accepted.items() if count > 10} >= WAYS, accepted


@pytest.mark.slow
def test_what_is_sent_is_answered_as_described(service, ask):
    check_all(service, ask, examples=10)


@pytest.mark.long
@pytest.mark.timeout(9_000)  # over an hour on two cores
def test_a_thousand_of_each_are_answered_as_described(service, ask):
    check_all(service, ask, examples=1000)


def test_the_service_lives_and_holds_nothing_afterwards(service):
    assert service.client.get("/readyz").status_code == 200
    assert service.server.dispatcher.admission.requests == 0
    assert service.server.dispatcher.admission.stored_bytes == 0
