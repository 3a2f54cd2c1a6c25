"""The service does what its OpenAPI document says, whatever is sent (schemathesis makes it up from the document)."""

import contextlib
import http.server
import io
import json
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema
import pytest
import python_multipart
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import ignored_auth, negative_data_rejection, positive_data_acceptance
from schemathesis.core import NOT_SET

from service.engine.stub import SAMPLE_RATE
from service.keys import digest
from tests.service.serving import serving, tone, wav

KEY = "sk-steno-one"
CLIP = wav(tone(SAMPLE_RATE // 8))
# Made-up recordings are no audio and made-up models do not exist: what fits the document may still be refused.
# Keys are for test_access.py: this check would send ours again and call it none.
UNSAYABLE = [positive_data_acceptance, ignored_auth]
YES_OR_NO = dict.fromkeys(["1", "true", "on", "t", "y", "yes"], True) | dict.fromkeys(
    ["0", "false", "off", "f", "n", "no"], False
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server of the recording that requests name by its URL."""
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
    settings = {"jobs_folder": tmp_path_factory.mktemp("jobs"), "job_retention_seconds": 1.0, "url_hosts": store}
    with serving(api_keys=f"me:{digest(KEY)}", **settings) as served:
        yield served


def is_right_as_text(case: schemathesis.Case, request: requests.PreparedRequest) -> bool:
    """Whether a made-up wrong value arrives as a right one: all is text in forms, and an empty list is absent."""
    if case.body is NOT_SET:
        parameters = case.operation.definition.raw.get("parameters", [])
        schemas = {one["name"]: one["schema"] for one in parameters if one["in"] == "query"}
        query = parse_qs(urlsplit(request.url).query, keep_blank_values=True)
        return bool(schemas) and all(name in schemas and is_right(query[name], schemas[name]) for name in query)
    if case.media_type != "multipart/form-data":
        return False
    schemas = case.operation.get_body_for_media_type(case.media_type).resolved_schema["properties"]
    fields: dict[str, list[str]] = {}
    files = []
    python_multipart.parse_form(
        {"Content-Type": request.headers["content-type"].encode()},
        io.BytesIO(request.body),
        lambda field: fields.setdefault(field.field_name.decode(), []).append((field.value or b"").decode()),
        lambda file: files.append(file.field_name.decode()),
    )
    return "file" in files and all(is_right(fields[name], schemas[name]) for name in fields if name in schemas)


def is_right(values: list[str], schema: dict) -> bool:
    """Whether a field of a form can be read as its schema says."""
    values = [value for value in values if value]
    if not values:
        return True
    readings: list[object] = [values[-1], YES_OR_NO.get(values[-1].lower())]
    if schema.get("type") == "array":
        readings = [[part.strip() for value in values for part in value.split(",")]]
    with contextlib.suppress(ValueError):
        readings.append(json.loads(values[-1]))
    return any(jsonschema.Draft202012Validator(schema).is_valid(reading) for reading in readings)


@pytest.fixture(scope="module")
def ask(service):
    """Send a case, check the answer against the document."""
    with requests.Session() as session:
        session.trust_env = False

        def send(case: schemathesis.Case, *, key: str | None = KEY, is_valid: bool = False) -> int:
            answer = case.call(
                base_url=f"http://127.0.0.1:{service.server.port}",
                session=session,
                headers={"authorization": f"Bearer {key}"} if key else {},
            )
            # Where a recording was put in, it does not know any longer that the case is a valid one.
            is_valid = is_valid or (answer.status_code < 300 and is_right_as_text(case, answer.request))
            is_refused = answer.status_code == 413  # which the check does not take for a refusal
            excluded = [*UNSAYABLE, negative_data_rejection] if is_valid or is_refused else UNSAYABLE
            case.validate_response(answer, excluded_checks=excluded)
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
            status = ask(recording_in(case, store), key=key, is_valid=True)
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
