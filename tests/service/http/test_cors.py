"""Requests from pages of other origins (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

import pytest

from benchmarks.stub_engine import FAIL_SAMPLES, SAMPLE_RATE
from service.keys import digest
from service.settings import Settings, SettingsError
from tests.service.serving import form, serving, tone, wav

ORIGIN, OTHER = "https://app.example", "https://evil.example"
KEY = "sk-steno-one"
# What OpenAI's client for JavaScript adds to a request is not on the list that every page may send.
HEADERS = "authorization,x-stainless-lang,x-stainless-retry-count"


def preflight(service, origin: str, method: str = "POST"):
    asked = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": HEADERS,
    }
    return service.client.options("/v1/audio/transcriptions", headers=asked)


@pytest.fixture(scope="module")
def service():
    with serving(cors_origins=(ORIGIN, "http://localhost:3000"), api_keys=f"me:{digest(KEY)}") as served:
        yield served


@pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:3000"])
def test_a_listed_origin_may_preflight_without_a_key(service, origin):
    answer = preflight(service, origin)

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert set(HEADERS.split(",")) <= set(answer.headers["access-control-allow-headers"].replace(" ", "").split(","))
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", [OTHER, "https://app.example:8443", "http://app.example", "null"])
def test_no_other_origin_may(service, origin):
    answer = preflight(service, origin)

    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("file", "key", "status"),
    [
        *((wav(tone(SAMPLE_RATE)), KEY, 200), (wav(tone(FAIL_SAMPLES)), KEY, 500)),
        *((b"not audio", KEY, 400), (b"", "wrong", 401)),
    ],
)
def test_a_listed_page_reads_answers_and_errors_and_their_headers(service, file, key, status):
    answer = service.post(**form(file), headers={"origin": ORIGIN, "authorization": f"Bearer {key}"})

    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["x-request-id"]
    readable = set(answer.headers["access-control-expose-headers"].split(", "))
    assert {"x-request-id", "retry-after", "x-should-retry"} <= readable


def test_unset_no_page_but_the_services_own_may_call():
    with serving(wait_ready=False) as service:
        answer = preflight(service, ORIGIN)
        plain = service.client.get("/v1/models", headers={"origin": ORIGIN})

    assert answer.status_code == 405
    assert "access-control-allow-origin" not in {**answer.headers, **plain.headers}


def test_a_star_lets_every_page_call():
    with serving(wait_ready=False, cors_origins="*") as service:
        answer = service.client.get("/v1/models", headers={"origin": OTHER})

    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://app.example/page", "HTTPS://A.B"])
def test_a_setting_that_is_not_an_origin_is_refused_at_the_start(origin):
    with pytest.raises(SettingsError, match="is not an origin"):
        Settings.read({"cors_origins": origin})
