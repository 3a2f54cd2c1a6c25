"""Long uploads are transcribed while they arrive, with the same answers as those that arrive at once."""

import contextlib
import io
import json
import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.stub import SAMPLE_RATE
from service.http import early
from service.http.access import digest
from tests.audio.media_files import LIVE, media
from tests.service.serving import ThreadedServer, form, serving, wait_for, wav
from tests.service.slow_upload import Upload, sound, transcribed_seconds

LONGEST = 4.0
# Everything is taken for speech, so that all of it is transcribed.
FIELDS = {"chunking_strategy": "none", "model": "whisper-1"}
BOUNDARY = "between"


@pytest.fixture(scope="module", autouse=True)
def impatient():
    """Decode without pauses, because tests do not wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "_BRIEF_SECONDS", 0.0)
        patch.setattr(early, "_REST", 0)
        yield


@pytest.fixture(scope="module")
def service():
    with serving(max_utterance_seconds=LONGEST, max_audio_seconds=300.0, decode_threads=2) as served:
        yield served


def raw(service: ThreadedServer, file: bytes, content_type: str = "audio/wav", **fields: str) -> Upload:
    return Upload(service, file, content_type, **(FIELDS | fields))


def multipart(service: ThreadedServer, *parts: tuple[str, bytes | str]) -> Upload:
    """An upload of a form whose parts come in this order."""
    body = b""
    for name, value in parts:
        named = f'name="{name}"' + ('; filename="a"' if isinstance(value, bytes) else "")
        content = value if isinstance(value, bytes) else value.encode()
        body += f"--{BOUNDARY}\r\nContent-Disposition: form-data; {named}\r\n\r\n".encode() + content + b"\r\n"
    return Upload(service, body + f"--{BOUNDARY}--\r\n".encode(), f"multipart/form-data; boundary={BOUNDARY}")


@contextlib.contextmanager
def begun_early(service: ThreadedServer, upload: Upload, until: float = 0.8) -> Iterator[Upload]:
    """Send a share of an upload, and wait until a part of it is transcribed."""
    with contextlib.closing(upload.connection):
        before = transcribed_seconds(service)
        upload.send(until)
        wait_for(lambda: transcribed_seconds(service) > before)
        yield upload


def nothing_is_left(service: ThreadedServer) -> bool:
    dispatcher = service.server.dispatcher
    admission = dispatcher.admission
    return not admission.requests and not admission.backlog.entries and not dispatcher.window._held


@pytest.fixture(scope="module")
def minute():
    return wav(sound(60), subtype="PCM_16")


@pytest.fixture(scope="module")
def at_once(service, minute):
    """The answer to an upload that arrives at once."""
    answered = service.post(**form(minute, **FIELDS, response_format="verbose_json"))
    assert answered.status_code == 200
    return answered.json()


def test_a_body_is_transcribed_while_it_arrives(service, minute, at_once):
    with begun_early(service, raw(service, minute, response_format="verbose_json")) as upload:
        status, answer = upload.send().answer()

    assert status == 200
    assert answer == at_once
    wait_for(lambda: nothing_is_left(service))


def test_pauses_are_found_as_in_a_file_that_arrives_at_once(service, golden):
    silence = np.zeros(SAMPLE_RATE, np.float32)
    voices = [soundfile.read(golden / "clips" / f"{name}.wav", dtype="float32")[0] for name in ("rms-6s", "slt-12s")]
    file = wav(np.tile(np.concatenate((voices[0], silence, voices[1], 0.1 * voices[0])), 3))
    expected = service.post(**form(file, response_format="verbose_json")).json()

    with begun_early(service, Upload(service, file, "audio/wav", response_format="verbose_json")) as upload:
        assert upload.send().answer() == (200, expected)


FILES = {
    "mp3": lambda: media(sound(60, 16_000), 16_000, "mp3", "libmp3lame"),
    "webm": lambda: media(sound(50, 16_000), 16_000, "webm", "libopus", LIVE),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_containers_that_decode_as_they_come_are_transcribed_while_they_arrive(service, kind):
    file = FILES[kind]()
    expected = service.post(**form(file, **FIELDS)).json()

    with begun_early(service, raw(service, file, "application/octet-stream")) as upload:
        assert upload.send().answer() == (200, expected)


@settings(max_examples=10, deadline=None)
@given(ends=st.lists(st.floats(0.0, 1.0), max_size=12).map(sorted))
def test_the_answer_does_not_depend_on_how_the_body_arrives(service, minute, at_once, ends):
    upload = raw(service, minute, response_format="verbose_json")
    for end in ends:
        upload.send(end)
        service.client.get("/healthz")  # the service has time to take it

    assert upload.send().answer() == (200, at_once)


FORM = tuple((FIELDS | {"response_format": "verbose_json"}).items())


def test_a_form_whose_file_comes_last_is_transcribed_while_it_arrives(service, minute, at_once):
    with begun_early(service, multipart(service, *FORM, ("file", minute))) as upload:
        assert upload.send().answer() == (200, at_once)


class HeldBack(io.BytesIO):
    """A file that is read to its end only after a part of it was transcribed."""

    def __init__(self, content: bytes, service: ThreadedServer):
        super().__init__(content)
        self._service = service
        self._before = transcribed_seconds(service)

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() > 0.8 * len(self.getbuffer()):
            wait_for(lambda: transcribed_seconds(self._service) > self._before)
        return super().read(size)


@pytest.mark.parametrize("stream", [False, True])
def test_openais_client_sends_the_file_last(service, minute, at_once, stream):
    url = f"http://127.0.0.1:{service.server.port}/v1"
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(api_key="unused", base_url=url, max_retries=0, http_client=http_client) as client:
        answer = client.audio.transcriptions.create(
            file=("a.wav", HeldBack(minute, service)),
            model="whisper-1",
            stream=stream,
            extra_body={"chunking_strategy": "none"},
        )
        text = [event.text for event in answer if event.type == "transcript.text.done"] if stream else [answer.text]

    assert text == [at_once["text"]]


def test_options_behind_the_file_count_as_they_do_before_it(service, minute, at_once):
    """The early start had other options; the answer has none of them."""
    early_fields = (("response_format", "json"), *FORM[:2])
    with begun_early(service, multipart(service, *early_fields, ("file", minute), FORM[2])) as upload:
        assert upload.send().answer() == (200, at_once)
    wait_for(lambda: nothing_is_left(service))


def test_a_form_whose_file_comes_first_waits_for_its_options(service, minute, at_once):
    upload = multipart(service, ("file", minute), *FORM).send(0.9)
    with begun_early(service, raw(service, minute)) as other:  # the service has time to begin
        other.send().answer()
    assert not service.server.dispatcher.admission.backlog.entries

    assert upload.send().answer() == (200, at_once)


def test_a_stream_begins_at_the_end_of_the_body_and_has_the_same_text(service, minute, at_once):
    with begun_early(service, raw(service, minute, stream="true")) as upload:
        assert not select.select([upload.connection.sock], [], [], 0.0)[0]
        upload.send()
        answered = upload.connection.getresponse()
        events = [json.loads(line[6:]) for line in answered.read().decode().split("\n\n") if line]

    assert events[-1]["text"] == at_once["text"]
    assert "".join(event["delta"] for event in events[:-1]) == at_once["text"]


def test_a_client_that_leaves_midway_takes_everything_along(service, minute):
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with begun_early(service, raw(service, minute)) as upload:
            upload.connection.close()
        wait_for(lambda: nothing_is_left(service))
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


def test_what_is_too_long_is_refused_before_all_of_it_has_arrived(service):
    file = wav(sound(400), subtype="PCM_16")

    upload = raw(service, file)
    shares = iter(np.linspace(0.9, 0.99, 100))
    wait_for(lambda: upload.send(next(shares)) and select.select([upload.connection.sock], [], [], 0.1)[0])
    status, answer = upload.answer()

    assert (status, answer["error"]["code"]) == (400, "audio_too_long")
    wait_for(lambda: nothing_is_left(service))


def test_an_upload_that_breaks_off_gets_no_answer(service, minute):
    with begun_early(service, multipart(service, *FORM, ("file", minute))) as upload:
        upload.connection.sock.shutdown(socket.SHUT_WR)
        assert upload.connection.sock.recv(1) == b""
    wait_for(lambda: nothing_is_left(service))


def test_a_wrong_option_is_answered_when_the_body_has_ended(service, minute):
    status, answer = raw(service, minute, model="unknown").send(0.8).send().answer()

    assert (status, answer["error"]["code"]) == (404, "model_not_found")


def test_an_mp4_whose_index_comes_last_is_transcribed_at_its_end(service):
    file = media(sound(30, 16_000), 16_000, "mp4", "aac")

    assert raw(service, file, "audio/mp4").send(0.8).send().answer()[0] == 200


@pytest.mark.slow
def test_joined_files_whose_beginning_decodes_differently_when_whole_are_transcribed_again(service):
    """libsndfile decodes the first MP3, FFmpeg both; their samples differ in the last bits."""
    one = media(sound(60, 16_000), 16_000, "mp3", "libmp3lame")
    expected = service.post(**form(one * 2, **FIELDS)).json()

    with begun_early(service, raw(service, one * 2, "audio/mpeg"), until=0.48) as upload:
        assert upload.send().answer() == (200, expected)
    wait_for(lambda: nothing_is_left(service))


def test_a_key_with_a_limit_on_audio_begins_at_the_end_of_the_body(minute, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"free:{digest('free')}\nlimited:{digest('limited')} audio_seconds_per_minute=30\n")
    with serving(max_utterance_seconds=LONGEST, api_keys_file=str(keys)) as service:
        limited = Upload(service, minute, "audio/wav", "limited", **FIELDS).send(0.9)
        with begun_early(service, Upload(service, minute, "audio/wav", "free", **FIELDS)) as free:
            assert free.send().answer()[0] == 200
        assert transcribed_seconds(service) == pytest.approx(60)

        assert limited.send().answer()[0] == 200
        again = service.post(headers={"authorization": "Bearer limited"}, **form(minute, **FIELDS))
        assert again.status_code == 429


@pytest.mark.slow
def test_many_slow_uploads_hold_no_thread(service, minute):
    slow = [raw(service, minute).send(0.5) for _ in range(20)]
    clip = wav(sound(1))

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: service.post(**form(clip, **FIELDS)).status_code, range(20)))
        assert answers == [200] * 20
        texts = list(threads.map(lambda upload: upload.send().answer()[1]["text"], slow))

    assert len(set(texts)) == 1
    wait_for(lambda: nothing_is_left(service))


def test_at_most_one_upload_is_decoded_early_at_a_time(service, minute, monkeypatch):
    under_way, most = 0, 0
    decode = early.decode_in_thread

    async def counted(*arguments):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await decode(*arguments)
        finally:
            under_way -= 1

    monkeypatch.setattr(early, "decode_in_thread", counted)
    with ThreadPoolExecutor(8) as threads:
        uploads = list(threads.map(lambda _: raw(service, minute).send(0.3).send(0.7), range(8)))
        statuses = list(threads.map(lambda upload: upload.send().answer()[0], uploads))

    assert statuses == [200] * 8
    assert most == 1
