"""Jobs over a real socket, with a stub engine and a real receiver of webhooks."""

import asyncio
import contextlib
import hashlib
import http.server
import json
import threading
from types import SimpleNamespace

import httpx
import openai
import pytest

from benchmarks.stub_engine import CRASH_SAMPLES, FAIL_SAMPLES, SAMPLE_RATE, transcript
from service.http.routes.jobs import transcribe_job
from service.jobs import webhook as webhooks
from service.jobs.job import Job
from service.jobs.store import JobStore
from tests.audio.test_hostile_files import vorbis
from tests.service.serving import ThreadedServer, form, listening, serving, tone, wait_for, wav

SECOND = tone(SAMPLE_RATE)
JOBS = "/v1/audio/jobs"
SECRET = "a secret of some length"
KEYS = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("ann", "bob")}


class Receiver(http.server.BaseHTTPRequestHandler):
    """Receives webhooks; the first ones get the answers that the test has prepared."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.server.received.append((dict(self.headers), body))
        self.send_response(status)
        self.send_header("location", "http://127.0.0.1/")
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", str(len(self.server.recording)))
        self.end_headers()
        self.wfile.write(self.server.recording)


@pytest.fixture
def receiver():
    with listening(Receiver) as server:
        server.received, server.answers, server.recording = [], [], wav(SECOND)
        yield server


def url(receiver) -> str:
    return f"{receiver.origin}/hook"


@contextlib.contextmanager
def jobs(folder, **settings):
    with serving(jobs_folder=folder, webhook_hosts="*,http://127.0.0.1:1", **settings) as service:
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def service(folder):
    with jobs(folder) as served:
        yield served


def create(service: ThreadedServer, samples=SECOND, **fields: str) -> httpx.Response:
    return service.client.post(JOBS, **form(wav(samples), **fields))


def created(service: ThreadedServer, samples=SECOND, **fields: str) -> str:
    answer = create(service, samples, **fields)
    assert answer.status_code == 202, answer.text
    behind_a_proxy = httpx.URL(f"http://proxy/prefix{JOBS}").join(answer.headers["location"])
    assert behind_a_proxy.path == f"/prefix{JOBS}/{answer.json()['id']}"
    return answer.json()["id"]


def state(service: ThreadedServer, job: str) -> str:
    return service.client.get(f"{JOBS}/{job}").json()["status"]


def finished(service: ThreadedServer, job: str) -> dict:
    wait_for(lambda: state(service, job) in ("completed", "failed"))
    return service.client.get(f"{JOBS}/{job}").json()


@pytest.mark.parametrize("response_format", ["json", "text", "srt", "vtt", "verbose_json"])
def test_the_result_is_what_a_transcription_is_answered_byte_for_byte(service, response_format):
    asked = {"response_format": response_format}
    job = created(service, **asked)

    described = finished(service, job)
    result = service.client.get(f"{JOBS}/{job}/result")
    direct = service.post(**form(wav(SECOND), **asked))

    assert (described["status"], described["duration"], described["error"]) == ("completed", 1.0, None)
    assert described["started_at"] <= described["finished_at"] < described["expires_at"]
    assert (result.status_code, result.headers["content-type"]) == (200, direct.headers["content-type"])
    assert result.content == direct.content


def test_a_job_takes_every_body_that_a_transcription_takes(tmp_path, receiver):
    origin = receiver.origin
    secret = {"webhook": url(receiver), "webhook_secret": SECRET}
    with serving(jobs_folder=tmp_path, url_hosts=origin, webhook_hosts=origin) as service:
        answers = [
            service.client.post(JOBS, content=wav(SECOND), headers={"content-type": "audio/wav"}),
            service.client.post(JOBS, json={"url": f"{origin}/speech.wav", **secret}),
        ]
        for answer in answers:
            assert answer.status_code == 202
            assert finished(service, answer.json()["id"])["status"] == "completed"
            result = service.client.get(f"{JOBS}/{answer.json()['id']}/result").json()
            assert result["text"] == transcript(SECOND).text
        wait_for(lambda: len(receiver.received) == 1)


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (wav(tone(FAIL_SAMPLES)), "internal_error"),
        (wav(tone(CRASH_SAMPLES)), "engine_lost"),
        (wav(tone(100)), "audio_too_short"),
        (vorbis(1), "decoder_crashed"),
        (b"nothing that sounds" * 10, "unsupported_format"),
    ],
    ids=["fails", "kills the engine", "short", "kills decoders", "no audio"],
)
def test_a_job_that_fails_is_answered_as_a_transcription_is(service, file, code):
    job = service.client.post(JOBS, **form(file)).json()["id"]

    described = finished(service, job)
    result = service.client.get(f"{JOBS}/{job}/result")
    direct = service.post(**form(file))

    assert described["status"] == "failed"
    assert described["error"]["code"] == direct.json()["error"]["code"] == code
    assert (result.status_code, result.json()) == (direct.status_code, direct.json())


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": "other"}, "model_not_found", "model"),
        ({"stream": "true"}, "unsupported_value", "stream"),
        ({"response_format": "pdf"}, "invalid_value", "response_format"),
        ({"task": "sing"}, "invalid_value", "task"),
        ({"task": "translate"}, "model_not_found", "model"),
        ({"webhook": "http://hooks.example/", "webhook_secret": SECRET}, "invalid_value", "webhook"),
        ({"webhook": "https://127.0.0.1/", "webhook_secret": SECRET}, "invalid_value", "webhook"),
        ({"webhook": "https://hooks.example/", "webhook_secret": "short"}, "invalid_value", "webhook_secret"),
        ({"webhook": "https://hooks.example/"}, "missing_required_parameter", "webhook_secret"),
    ],
)
def test_an_error_in_the_form_is_answered_at_once(service, fields, code, param):
    answer = create(service, **fields)

    assert answer.status_code in (400, 404)
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (code, param)


def test_a_result_that_is_not_there_yet_is_a_conflict_that_says_when_to_ask(service):
    with service.held():
        job = created(service)
        answer = service.client.get(f"{JOBS}/{job}/result")

        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "job_not_finished")
        assert int(answer.headers["retry-after"]) > 0
    assert finished(service, job)["status"] == "completed"


def test_a_job_is_deleted_wherever_it_is_with_all_there_is_of_it(service, folder):
    done = created(service)
    finished(service, done)
    before = service.metric('steno_jobs_total{outcome="cancelled"}')
    with service.held():
        under_way = [created(service) for _ in range(2)]
        wait_for(lambda: [state(service, job) for job in under_way] == ["in_progress"] * 2)
        waiting, other = created(service), created(service)
        for job in (done, waiting, *under_way):
            answer = service.client.delete(f"{JOBS}/{job}")
            assert answer.json() == {"id": job, "object": "audio.job.deleted", "deleted": True}
            for answer in (service.client.get(f"{JOBS}/{job}"), service.client.get(f"{JOBS}/{job}/result")):
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "job_not_found")
    assert finished(service, other)["status"] == "completed"
    assert list((folder / "recordings").iterdir()) == []
    assert service.metric('steno_jobs_total{outcome="cancelled"}') == before + 3


def test_interactive_requests_pass_jobs(service):
    """Both wait while the engine is stopped; the job came first."""
    service.post(**form(wav(SECOND)))  # what other tests left in the engine is answered
    (engine,) = service.server.fleet.engines
    with service.held():
        created(service)
        wait_for(lambda: engine.free_slots == 0)
        job = created(service, tone(SAMPLE_RATE * 3))
        wait_for(lambda: service.metric("steno_queue_depth") == 1)
        answers = []
        client = threading.Thread(target=lambda: answers.append(service.post(**form(wav(tone(20 * SAMPLE_RATE))))))
        client.start()
        wait_for(lambda: service.metric("steno_queue_depth") == 2)
        assert service.server.dispatcher.admission.backlog.seconds == 20.0  # of the predicted wait, jobs are no part
    client.join()
    assert answers[0].status_code == 200
    assert finished(service, job)["status"] == "completed"


def test_jobs_are_done_though_looking_for_them_fails(tmp_path, monkeypatch):
    errors = [OSError("no file can be opened"), ValueError("a bug")]
    due = JobStore.due_deliveries

    def fail_twice(store, *arguments):
        if errors:
            raise errors.pop()
        return due(store, *arguments)

    monkeypatch.setattr(JobStore, "due_deliveries", fail_twice)
    monkeypatch.setattr("service.jobs.jobs._FULL_SECONDS", 0.01)
    with jobs(tmp_path) as service:
        assert finished(service, created(service))["status"] == "completed"
        wait_for(lambda: not errors)
        assert finished(service, created(service))["status"] == "completed"


def test_without_a_folder_jobs_are_refused_with_the_reason():
    with serving() as service:
        for answer in (create(service), service.client.get(JOBS), service.client.get(f"{JOBS}/job_1")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "jobs_disabled")
            assert "STENO_JOBS_FOLDER" in answer.json()["error"]["message"]


def test_keys_see_their_own_jobs_only_and_have_limits_of_their_own(tmp_path):
    keys = ",".join(f"{name}:{digest}" for name, digest in KEYS.items())
    with jobs(tmp_path, api_keys=keys, max_jobs_per_key=2, max_jobs=3) as service:
        ann, bob = ({"authorization": f"Bearer {name}"} for name in KEYS)
        with service.held():
            mine = [service.client.post(JOBS, **form(wav(SECOND)), headers=ann).json()["id"] for _ in range(2)]
            third = service.client.post(JOBS, **form(wav(SECOND)), headers=ann)
            theirs = service.client.post(JOBS, **form(wav(SECOND)), headers=bob).json()["id"]
            fourth = service.client.post(JOBS, **form(wav(SECOND)), headers=bob)

            assert (third.status_code, third.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            assert (fourth.status_code, fourth.json()["error"]["code"]) == (503, "overloaded")
            assert all(int(answer.headers["retry-after"]) > 0 for answer in (third, fourth))
            listed = service.client.get(JOBS, headers=ann).json()
            assert [job["id"] for job in listed["data"]] == mine[::-1]
            assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (mine[1], mine[0], False)
            page = service.client.get(f"{JOBS}?limit=1", headers=ann).json()
            assert (page["last_id"], page["has_more"]) == (mine[1], True)
            rest = service.client.get(f"{JOBS}?limit=1&after={mine[1]}", headers=ann).json()
            assert [job["id"] for job in rest["data"]] == [mine[0]]
            for path in (f"/{theirs}", f"/{theirs}/result", f"?after={theirs}", "?after=job_that_was_deleted"):
                assert service.client.get(f"{JOBS}{path}", headers=ann).status_code == 404
            assert service.client.delete(f"{JOBS}/{theirs}", headers=ann).status_code == 404
            assert service.client.get(JOBS).status_code == 401
        assert service.client.get(f"{JOBS}?limit=0", headers=ann).status_code == 400


def test_a_webhook_is_sent_signed_and_once(tmp_path, receiver):
    with serving(jobs_folder=tmp_path, webhook_hosts=receiver.origin) as service:
        job = created(service, webhook=url(receiver), webhook_secret=SECRET)
        finished(service, job)
        wait_for(lambda: service.client.get(f"{JOBS}/{job}").json()["webhook"]["status"] == "delivered")

        ((headers, body),) = receiver.received
        with openai.OpenAI(api_key="none") as client:
            client.webhooks.verify_signature(
                body, {name.lower(): value for name, value in headers.items()}, secret=SECRET
            )
        told = json.loads(body)
        assert (told["type"], told["data"]["id"], told["data"]["status"]) == ("audio.job.completed", job, "completed")
        assert transcript(SECOND).text not in body.decode()
        assert SECRET not in service.client.get(f"{JOBS}/{job}").text
        assert service.metric('steno_webhook_deliveries_total{outcome="delivered"}') == 1


@pytest.mark.slow
def test_a_webhook_is_sent_again_until_it_is_accepted(tmp_path, receiver, monkeypatch):
    monkeypatch.setattr(webhooks, "RETRY_SECONDS", (0.01,) * 8)
    receiver.answers += [500, 302, 404]
    origin = receiver.origin
    with serving(jobs_folder=tmp_path, webhook_hosts=origin, webhook_secret=SECRET) as service:
        job = created(service, tone(FAIL_SAMPLES), webhook=url(receiver))
        wait_for(lambda: service.client.get(f"{JOBS}/{job}").json()["webhook"]["status"] == "delivered")

        assert service.client.get(f"{JOBS}/{job}").json()["webhook"]["attempts"] == 4
        assert len(receiver.received) == 4
        assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
        assert json.loads(receiver.received[0][1])["type"] == "audio.job.failed"


@pytest.mark.slow
def test_a_webhook_that_answers_410_or_never_accepts_is_given_up(tmp_path, receiver, monkeypatch):
    monkeypatch.setattr(webhooks, "RETRY_SECONDS", (0.01, 0.01))
    receiver.answers += [410] + [500] * 3
    origin = receiver.origin
    with serving(jobs_folder=tmp_path, webhook_hosts=f"{origin},http://127.0.0.1:1", webhook_secret=SECRET) as service:
        for attempts, where in ((1, url(receiver)), (3, url(receiver)), (3, "http://127.0.0.1:1/")):
            job = created(service, webhook=where)
            wait_for(lambda job=job: service.client.get(f"{JOBS}/{job}").json()["webhook"]["status"] == "failed")
            webhook = service.client.get(f"{JOBS}/{job}").json()["webhook"]
            assert webhook["attempts"] == attempts
            assert webhook["error"]
        assert service.metric('steno_webhook_deliveries_total{outcome="failed"}') == 3


def test_finished_jobs_are_deleted_after_their_retention(tmp_path):
    with jobs(tmp_path, job_retention_seconds=0.2) as service:
        job = created(service)
        wait_for(lambda: service.client.get(f"{JOBS}/{job}").status_code == 404)

        assert service.metric('steno_jobs_total{outcome="completed"}') == 1
        assert service.metric('steno_jobs_total{outcome="expired"}') == 1
        assert service.client.get(JOBS).json()["data"] == []


@pytest.mark.slow
def test_a_restart_begins_again_what_was_under_way_and_what_waited(tmp_path):
    with jobs(tmp_path) as service:
        with service.held():
            waiting = [created(service, tone(1000 * number)) for number in range(3, 8)]
            wait_for(lambda: [state(service, job) for job in waiting].count("in_progress") == 2)
            service.stop()
            service.stop()
    with jobs(tmp_path) as service:
        for number, job in enumerate(waiting, 3):
            assert finished(service, job)["status"] == "completed"
            assert service.client.get(f"{JOBS}/{job}/result").json()["text"] == transcript(tone(1000 * number)).text


@pytest.mark.parametrize("names", [["other"], []], ids=["one of several", "the last"])
def test_a_job_whose_key_was_withdrawn_is_not_begun(tmp_path, names):
    job = Job("job_1", "gone", "in_progress", "m", b'{"fields": [], "media_type": "", "task": "transcribe"}', 5, 1.0)
    tracer = SimpleNamespace(begin=lambda *_, **__: None)
    front = SimpleNamespace(access=SimpleNamespace(names=names, is_open=False), tracer=tracer)

    result = asyncio.run(transcribe_job(front, job, tmp_path / "not read", lambda: False))

    assert (result.status, result.error_code) == (401, "invalid_api_key")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_webhooks_of_clients_without_a_key_are_counted_by_their_networks(tmp_path, processes):
    """Not by what a client writes in a header, in one process or several."""
    fields = {"webhook": "https://hooks.example/", "webhook_secret": SECRET}
    with jobs(tmp_path, http_processes=processes) as service:
        for address in ("127.0.0.5", "127.0.0.6"):
            transport = httpx.HTTPTransport(local_address=address)
            # A balancer on 127.0.0.1 would be believed, and these are not one.
            headers = {"x-forwarded-for": "203.0.113.9"}
            with httpx.Client(transport=transport, base_url=service.client.base_url, headers=headers) as client:
                assert client.post(JOBS, **form(wav(SECOND), **fields)).status_code == 202
        made = [job["id"] for job in service.client.get(JOBS).json()["data"]]
    with contextlib.closing(JobStore(tmp_path, max_jobs=2, max_jobs_of_caller=None)) as store:
        found = {store.find(job).delivery.client for job in made}

    assert found == {"127.0.0.5", "127.0.0.6"}
