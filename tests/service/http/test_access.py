import re
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from starlette.datastructures import Headers

from benchmarks.stub_engine import FAIL_SAMPLES, SAMPLE_RATE
from service.http.errors import RequestError
from service.http.keys.access import Access
from service.keys import Key, KeyLimits, digest
from service.settings import Settings, SettingsError
from tests.service.serving import form, serving, tone, wait_for, wav

KEY, OTHER = "sk-steno-one", "sk-steno-two"
KEYS = (f"alice:{digest(KEY)}", f"bob:{digest(OTHER)}")
ALICE, BOB = ({"authorization": f"Bearer {key}"} for key in (KEY, OTHER))
RECORDING = wav(tone(SAMPLE_RATE))


@pytest.fixture(scope="module")
def service():
    with serving(api_keys=KEYS) as served:
        yield served


@pytest.mark.parametrize("key", [KEY, OTHER])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_every_key_opens_the_api(service, key, scheme):
    answer = service.post(**form(RECORDING), headers={"authorization": f"{scheme} {key}"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [None, "", KEY, "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY} x", f"Bearer {digest(KEY)}"],
)
def test_no_other_key_opens_the_api(service, header):
    headers = {} if header is None else {"authorization": header}
    for answer in (service.post(**form(RECORDING), headers=headers), service.client.get("/v1/models", headers=headers)):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_and_metrics_need_no_key(service, path):
    assert service.client.get(path).status_code == 200


def test_a_key_in_the_place_of_its_digest_is_refused_without_being_repeated():
    with pytest.raises(SettingsError, match="entry 1 is not name:sha256") as refusal:
        Settings.read({"model": "m", "api_keys": f"alice:{KEY}"})

    assert KEY not in str(refusal.value)


def test_requests_under_way_are_limited_by_key():
    with serving(api_keys=KEYS, max_requests_per_key=2) as service, ThreadPoolExecutor() as pool:
        service.hold_engine()
        waiting = [pool.submit(service.post, **form(RECORDING), headers=ALICE) for _ in range(2)]
        wait_for(lambda: service.metric('steno_http_requests_in_flight{endpoint="transcriptions"}') == 2)

        third = service.post(**form(RECORDING), headers=ALICE)
        others = pool.submit(service.post, **form(RECORDING), headers=BOB)
        models = service.client.get("/v1/models", headers=ALICE)
        service.release_engine()

        assert third.status_code == 429
        assert third.json()["error"]["type"] == "rate_limit_error"
        assert third.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(third.headers["retry-after"]) <= 60
        assert models.status_code == 200
        assert [answer.result().status_code for answer in (*waiting, others)] == [200] * 3
        assert service.post(**form(RECORDING), headers=ALICE).status_code == 200
        assert service.metric('steno_queue_rejected_total{reason="key"}') == 1


def test_keys_of_one_name_share_a_limit_and_finished_requests_free_it():
    keys = [Key("alice", digest(KEY)), Key("alice", digest(OTHER))]
    alice = Access(keys, KeyLimits(max_requests=1), is_open=False).allowance("alice")

    with alice.enter(1), pytest.raises(RequestError) as refusal, alice.enter(7):
        pass

    assert (refusal.value.status, refusal.value.retry_after) == (429, 7)
    with alice.enter(1):
        pass


def test_keys_of_one_name_have_one_limit_their_own_or_the_services():
    limits = KeyLimits(max_requests=1)
    keys = [Key("alice", digest(KEY), limits), Key("alice", digest(OTHER))]

    assert Access(keys, limits, is_open=False).allowance("alice").limits == limits
    with pytest.raises(ValueError, match="two keys of 'alice' have different limits"):
        Access(keys, is_open=False)


def test_keys_that_are_replaced_open_nothing_and_names_keep_what_they_used():
    access = Access([Key("alice", digest(KEY))], KeyLimits(requests_per_minute=1), is_open=False)
    with access.allowance("alice").enter(1):
        pass

    access.replace([Key("alice", digest(OTHER))])

    with pytest.raises(RequestError, match="not known"):
        access.authorize(Headers({"authorization": f"Bearer {KEY}"}))
    assert access.authorize(Headers({"authorization": f"Bearer {OTHER}"})) == "alice"
    with pytest.raises(RequestError, match="1 requests a minute"), access.allowance("alice").enter(1):
        pass


@pytest.mark.parametrize(
    "limit", ["max_requests_per_key", "requests_per_minute_per_key", "audio_seconds_per_minute_per_key"]
)
def test_a_limit_for_keys_without_keys_is_refused(limit):
    with pytest.raises(SettingsError, match=f"{limit} needs api_keys"):
        Settings.read({limit: 3})


def test_requests_in_a_minute_are_counted_in_headers_and_refused_over_the_limit():
    with serving(api_keys=KEYS, requests_per_minute_per_key=2) as service:
        first, second, third = (service.post(**form(RECORDING), headers=ALICE) for _ in range(3))
        other = service.post(**form(RECORDING), headers=BOB)

        assert [answer.status_code for answer in (first, second, third, other)] == [200, 200, 429, 200]
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in (first, second)] == ["1", "0"]
        assert third.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(third.headers["retry-after"]) <= 30
        assert re.fullmatch(r"1m0s|[1-5]?\ds", third.headers["x-ratelimit-reset-requests"])
        assert service.metric('steno_key_requests_total{key="alice",status_class="2xx"}') == 2
        assert service.metric('steno_key_requests_total{key="alice",status_class="4xx"}') == 1
        assert service.metric('steno_key_audio_seconds_total{key="alice"}') == 2
        assert service.metric('steno_key_audio_seconds_total{key="bob"}') == 1


def test_audio_over_a_minutes_limit_is_transcribed_and_later_requests_wait():
    long = wav(tone(5 * SAMPLE_RATE))
    with serving(api_keys=KEYS, audio_seconds_per_minute_per_key=2) as service:
        bad = service.post(**form(b"no audio"), headers=ALICE)
        first = service.post(**form(long), headers=ALICE)
        second = service.post(**form(long), headers=ALICE)

        assert (bad.status_code, bad.headers["x-ratelimit-remaining-audio-seconds"]) == (400, "2")
        assert (first.status_code, second.status_code) == (200, 429)
        assert first.headers["x-ratelimit-limit-audio-seconds"] == "2"
        assert first.headers["x-ratelimit-remaining-audio-seconds"] == "0"
        assert 85 <= int(second.headers["retry-after"]) <= 91  # 3 s too much, at 2 s a minute
        assert second.headers["x-should-retry"] == "false"  # the clients would not wait for so long
        assert "x-ratelimit-limit-requests" not in second.headers


def test_what_fails_costs_no_audio():
    with serving(api_keys=KEYS, audio_seconds_per_minute_per_key=3) as service:
        failed = service.post(**form(wav(tone(FAIL_SAMPLES))), headers=ALICE)

        assert (failed.status_code, failed.headers["x-ratelimit-remaining-audio-seconds"]) == (500, "3")


@pytest.mark.slow
def test_openais_client_waits_for_retry_after_and_tries_again():
    url = "http://127.0.0.1:{}/v1"
    with serving(api_keys=KEYS, max_requests_per_key=1) as service, ThreadPoolExecutor() as pool:
        service.hold_engine()
        first = pool.submit(service.post, **form(RECORDING), headers=ALICE)
        wait_for(lambda: service.metric('steno_http_requests_in_flight{endpoint="transcriptions"}') == 1)
        with (
            openai.DefaultHttpxClient(trust_env=False) as http,
            openai.OpenAI(
                api_key=KEY, base_url=url.format(service.server.port), http_client=http, max_retries=1
            ) as client,
        ):
            with pytest.raises(openai.RateLimitError) as refusal:
                client.audio.transcriptions.create(model="whisper-1", file=RECORDING)
            patient_client = client.with_options(max_retries=20)
            patient = pool.submit(patient_client.audio.transcriptions.create, model="whisper-1", file=RECORDING)
            wait_for(lambda: service.metric('steno_queue_rejected_total{reason="key"}') >= 3)
            service.release_engine()

            assert (refusal.value.code, refusal.value.type) == ("rate_limit_exceeded", "rate_limit_error")
            assert patient.result().text
            assert first.result().status_code == 200
            assert service.metric('steno_http_client_retries_total{lang="python"}') >= 2
