"""Recordings longer than an utterance, over a real socket with a stub engine: cut, joined, streamed, cancelled."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import traceback

import httpx
import numpy as np
import pytest
import soundfile
import srt

from audio.child_process import ChildProcess
from benchmarks.stub_engine import CRASH_SAMPLES, FAIL_SAMPLES, SAMPLE_RATE
from service.http.transcription import answer as answering
from tests.audio.media_files import media
from tests.service.serving import ThreadedServer, form, metric, post_bytes, serving, stop_decoders, tone, wait_for, wav
from tests.service.serving import events as events_of
from tests.soak.processes import decoders
from transcripts import events as written_events
from transcripts.subtitle_stream import SubtitleStream

LONGEST = 5.0


@pytest.fixture(scope="module")
def service():
    with serving(max_utterance_seconds=LONGEST, batch_seconds=20.0, request_timeout_seconds=30.0) as served:
        yield served


@pytest.fixture(scope="module")
def speech(golden):
    """Half a minute of voices with silence around them."""
    silence = np.zeros(2 * SAMPLE_RATE, np.float32)
    voices = [soundfile.read(golden / "clips" / f"{name}.wav", dtype="float32")[0] for name in ("rms-6s", "slt-12s")]
    return np.concatenate([silence, voices[0], silence, voices[1], silence])


def events(service: ThreadedServer, samples: np.ndarray, **fields: str) -> list[dict]:
    answer = service.post(**form(wav(samples), stream="true", **fields))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events_of(answer)


def nothing_is_left(service: ThreadedServer) -> bool:
    admission = service.server.dispatcher.admission
    metrics = httpx.get(service.client.base_url.join("/metrics"), trust_env=False).text  # the client may be closed
    return admission.requests == admission.backlog.seconds == metric(metrics, "steno_queue_depth") == 0


def test_pieces_of_a_long_recording_have_the_times_of_the_whole(service, speech):
    answer = service.post(**form(wav(speech), response_format="verbose_json", timestamp_granularities="word")).json()

    # The stub hears two words in a piece, its samples and their sum; what two pieces share is once in the text.
    pieces = [int(word["word"]) for word in answer["words"] if "." not in word["word"]]
    assert answer["duration"] == len(speech) / SAMPLE_RATE
    assert len(pieces) >= 2
    assert max(pieces) <= LONGEST * SAMPLE_RATE
    assert answer["skipped_seconds"] > 3  # silence
    assert answer["transcribed_seconds"] + answer["skipped_seconds"] == pytest.approx(answer["duration"], abs=0.01)
    assert answer["speech_without_text_seconds"] == 0
    begun = [word["start"] for word in answer["words"]]
    assert begun == sorted(begun)
    assert 1.5 < begun[0] < 3
    assert answer["words"][-1]["end"] <= answer["duration"]


def test_a_stream_holds_its_place_until_it_was_sent_and_is_measured(service, speech):
    before = service.metric("steno_transcription_duration_seconds_count")

    events(service, speech)

    wait_for(lambda: nothing_is_left(service))
    wait_for(lambda: service.metric("steno_transcription_duration_seconds_count") == before + 1)


def with_small_buffers(end: socket.socket) -> socket.socket:
    """The system would take megabytes."""
    for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        end.setsockopt(socket.SOL_SOCKET, size, 4096)
    return end


def test_a_stream_that_is_not_read_is_dropped(cut_as, monkeypatch):
    cut_as(*[SAMPLE_RATE // 10] * 300)
    listen = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda *where, **how: with_small_buffers(listen(*where, **how)))
    with serving(max_utterance_seconds=LONGEST, receive_timeout_seconds=0.3) as service, socket.socket() as connection:
        with_small_buffers(connection).connect(("127.0.0.1", service.server.port))
        fields = {"stream": "true", "include[]": "logprobs"}
        connection.sendall(post_bytes(service.server.port, wav(tone(30 * SAMPLE_RATE)), **fields))
        assert connection.recv(1).startswith(b"H")

        wait_for(lambda: nothing_is_left(service))

        heard = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                heard += piece
        assert b"transcript.text.delta" in heard
        assert b"transcript.text.done" not in heard


@pytest.mark.parametrize("stream", ["false", "true"])
def test_silence_of_any_length_is_an_empty_text(service, stream):
    answer = service.post(**form(wav(np.zeros(60 * SAMPLE_RATE, np.float32)), stream=stream))

    assert answer.status_code == 200
    last = answer.text.strip().removeprefix("data: ")
    assert json.loads(last)["text"] == ""


def test_pauses_can_be_chosen_and_are_then_cut_at_even_in_a_short_recording(service, speech):
    short = speech[: 4 * SAMPLE_RATE]  # two seconds of silence, two of a voice
    whole = service.post(**form(wav(short))).json()["text"]
    cut = service.post(**form(wav(short), chunking_strategy='{"type": "server_vad"}')).json()["text"]
    deaf = service.post(**form(wav(short), chunking_strategy='{"type": "server_vad", "threshold": 1}')).json()["text"]

    assert int(whole.split()[0]) == len(short)
    assert 0 < int(cut.split()[0]) < 3 * SAMPLE_RATE
    assert deaf == ""


def test_audio_without_speech_is_reported_measured_and_logged(service, speech, caplog):
    skipped = 'steno_audio_without_words_seconds_total{kind="no_speech"}'
    before = service.metric(skipped)
    asked = {"chunking_strategy": '{"type": "server_vad", "threshold": 1}', "response_format": "verbose_json"}
    with caplog.at_level("INFO", "steno.http"):
        answer = service.post(**form(wav(speech), **asked)).json()

    assert (answer["text"], answer["transcribed_seconds"]) == ("", 0)
    assert answer["skipped_seconds"] == pytest.approx(len(speech) / SAMPLE_RATE, abs=0.001)
    assert service.metric(skipped) - before == pytest.approx(answer["skipped_seconds"])
    logged = [record for record in caplog.records if record.message == "request" and hasattr(record, "skipped_seconds")]
    assert logged[-1].skipped_seconds == answer["skipped_seconds"]


def test_all_audio_is_transcribed_if_nothing_may_be_left_out(service):
    silence = np.zeros(30 * SAMPLE_RATE, np.float32)

    answers = [
        service.post(**form(wav(silence), response_format="verbose_json", chunking_strategy=strategy)).json()
        for strategy in ("none", "auto")
    ]

    assert [answer["skipped_seconds"] for answer in answers] == [0, 30]
    assert [answer["transcribed_seconds"] for answer in answers] == [30, 0]
    assert answers[0]["text"]


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_piece_that_fails_before_the_first_text_is_an_error_of_the_whole(service, cut_as, stream):
    cut_as(*((20_000, FAIL_SAMPLES, 20_000) if stream == "false" else (FAIL_SAMPLES, 20_000)))

    answer = service.post(**form(wav(tone(100_000)), stream=stream))

    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    wait_for(lambda: nothing_is_left(service))


@pytest.mark.parametrize(("length", "code"), [(FAIL_SAMPLES, "internal_error"), (CRASH_SAMPLES, "engine_lost")])
def test_a_piece_that_fails_later_is_an_error_within_the_stream(service, cut_as, length, code):
    cut_as(80_000, 70_000, 60_000, length)
    before = service.metric(f'steno_errors_total{{kind="{code}"}}') if code == "internal_error" else 0

    *deltas, last = events(service, tone(300_000))

    assert last["error"]["code"] == code
    assert last["error"]["type"] == "server_error"
    assert all(event["type"] == "transcript.text.delta" for event in deltas)
    wait_for(lambda: service.metric(f'steno_errors_total{{kind="{code}"}}') == before + 1)
    wait_for(lambda: nothing_is_left(service))


def test_all_pieces_of_a_client_that_leaves_are_dropped(service, speech):
    with service.held():
        with socket.create_connection(("127.0.0.1", service.server.port)) as connection:
            connection.sendall(post_bytes(service.server.port, wav(np.tile(speech, 4))))
            wait_for(lambda: service.server.dispatcher.admission.backlog.seconds > 0)
            wait_for(lambda: service.metric("steno_queue_depth") > 0)
        wait_for(lambda: nothing_is_left(service))
    assert service.post(**form(wav(tone(SAMPLE_RATE)))).status_code == 200


def a_thread_waits_for_a_decoder():
    stacks = [traceback.walk_stack(frame) for frame in sys._current_frames().values()]
    return any(frame.f_code is ChildProcess.decode_into.__code__ for stack in stacks for frame, _ in stack)


def test_the_decoding_process_of_a_client_that_leaves_is_ended():
    file = media(tone(200 * SAMPLE_RATE), SAMPLE_RATE, "ipod", "aac")  # it answers in four pieces
    others = decoders(os.getpid())
    with serving(max_utterance_seconds=LONGEST) as service:
        assert service.post(**form(file)).status_code == 200
        before, registry = stop_decoders(os.getpid(), others), service.server.metrics.registry
        service.client.close()
        wait_for(lambda: registry.get_sample_value("steno_connections") == 0)
        with socket.create_connection(("127.0.0.1", service.server.port)) as connection:
            connection.sendall(post_bytes(service.server.port, file))
            wait_for(a_thread_waits_for_a_decoder)
        wait_for(lambda: registry.get_sample_value("steno_connections") == 0)

        for decoder in before:
            os.kill(decoder, signal.SIGCONT)

        wait_for(lambda: nothing_is_left(service))
        wait_for(lambda: not set(before) <= set(decoders(os.getpid())))


def test_the_rest_of_a_stream_whose_client_leaves_is_dropped(service, cut_as):
    cut_as(*[70_000] * 40)
    body = form(wav(tone(2_800_000)), stream="true")
    with service.client.stream("POST", "/v1/audio/transcriptions", **body) as answer:
        next(answer.iter_lines())
        service.hold_engine()
    try:
        wait_for(lambda: nothing_is_left(service))
    finally:
        service.release_engine()


@pytest.mark.parametrize("multichannel", ["false", "true"])
def test_a_part_without_times_is_shown_in_its_own_time(multichannel, cut_as):
    cut_as(4 * SAMPLE_RATE, 3 * SAMPLE_RATE)
    seven = tone(7 * SAMPLE_RATE)
    with serving(model="untimed.nemo", max_utterance_seconds=LONGEST) as service:
        *_, done = events(service, seven, response_format="srt", multichannel=multichannel)
        told = events(service, seven, response_format="verbose_json", multichannel=multichannel)

    shown = [(cue.start.total_seconds(), cue.end.total_seconds()) for cue in srt.parse(done["text"])]
    assert shown == [(0.0, 4.0), (4.0, 7.0)]
    segments = [event for event in told if event["type"] == "transcript.text.segment"]
    assert [(event["start"], event["end"]) for event in segments] == shown


def is_on_loop():
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


@pytest.fixture
def ran_on_loop(monkeypatch):
    """Record for the steps of writing an answer whether they ran on an event loop."""
    ran: list[bool] = []

    def watch(where, name: str) -> None:
        step = getattr(where, name)

        def watched(*args, **kwargs):
            ran.append(is_on_loop())
            return step(*args, **kwargs)

        monkeypatch.setattr(where, name, watched)

    for name in ("joined", "segment_texts", "as_json", "as_verbose_json", "as_text", "as_subtitles"):
        watch(answering, name)
    watch(written_events, "whole")
    watch(SubtitleStream, "end")
    return ran


@pytest.mark.parametrize("multichannel", ["false", "true"])
@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("response_format", ["json", "text", "srt", "vtt", "verbose_json"])
def test_a_long_answer_is_written_in_a_thread_and_is_the_same(
    response_format, stream, multichannel, service, cut_as, ran_on_loop, monkeypatch
):
    """Because it takes longer than the event loop may stand still."""
    cut_as(*[SAMPLE_RATE // 10] * 60)
    sides = np.stack([tone(6 * SAMPLE_RATE), tone(6 * SAMPLE_RATE, 0.2)], axis=1)
    asked = form(wav(sides), response_format=response_format, stream=stream, multichannel=multichannel)

    written = service.post(**asked).text
    assert ran_on_loop
    assert not any(ran_on_loop)

    monkeypatch.setattr(answering, "_TOKENS_ON_LOOP", 10**6)
    assert service.post(**asked).text == written
    assert any(ran_on_loop)
