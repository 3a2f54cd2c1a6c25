import asyncio
import dataclasses
import socket
import threading

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.channel import BlockingChannel, Channel
from service.engine.protocol import (
    Batch,
    Failure,
    FailureKind,
    Heartbeat,
    Load,
    LoadFailure,
    ModelInfo,
    Ready,
    Result,
    Stop,
    Unload,
    from_engine,
    to_engine,
)
from service.shared_audio import Item
from transcripts.prompt import DEFAULT_PROMPT, Prompt
from transcripts.transcript import FlatTranscripts, Transcript, Word

LOAD = Load("m", "m.nemo", "cpu", "float32", [1.0, 2.0], None, 2)
BATCH = Batch(
    7, "m", "ctc", [DEFAULT_PROMPT, Prompt("de", "en", False, True)], 2, [Item(0, 16_000), Item(16_000, 8_000)]
)
RESULT = Result(
    7,
    [Transcript("hé", [1], [0.5], [Word("hé", 0.0, 0.1, None, (0, 1)), Word("ho", None, None, 0.5, (1, 1))])],
    0.1,
    2.0,
)

READY = Ready("m", ModelInfo("stub", "none", "float32"), [], 16_000, 60.0, 2, 30.0, 0, 1.0, 1.0, [2.0, 4.0])

FLAT = FlatTranscripts(
    ["hé"],
    *(np.array(some, np.int32).tobytes() for some in ([0, 1], [1])),
    np.array([0.5], np.float32).tobytes(),
    *(None, None, np.array([0, 1], np.int32).tobytes(), np.array([0.0, 0.1]).tobytes()),
    np.array([0.5], np.float32).tobytes(),
    *(np.array(some, np.int32).tobytes() for some in ([0, 1], [0, 2])),
)


def test_transcripts_in_arrays_are_those_that_were_sent():
    wanted = [Transcript("hé", [1], [0.5], [Word("hé", 0.0, 0.1, 0.5, (0, 1))])]
    other = Transcript("ho", [2], [0.25], [])

    assert list(FLAT) == wanted
    assert list(dataclasses.replace(FLAT, word_characters=None)) == wanted
    assert list(dataclasses.replace(FLAT, others={0: other})) == [other]


def test_every_message_arrives_as_it_was_sent():
    ours, theirs = socket.socketpair()
    engine = BlockingChannel(theirs, to_engine)
    failures = LoadFailure("m", "no"), Failure(7, FailureKind.BATCH, "x" * 300_000)
    sent = [Heartbeat(), READY, RESULT, Result(8, FLAT, 0.1, 2.0), *failures]

    async def front() -> tuple[list, list]:
        channel, heard, all_heard = Channel(from_engine), [], asyncio.Event()

        def hear(message) -> None:
            heard.append(message)
            if len(heard) == len(sent):
                all_heard.set()

        await channel.open(ours, hear)
        for message in (LOAD, BATCH, Unload("m"), Stop()):
            channel.send(message)
        await all_heard.wait()
        channel.close()
        return heard, await asyncio.to_thread(lambda: list(engine.messages()))

    speaker = threading.Thread(target=lambda: [engine.send(message) for message in sent])
    speaker.start()
    heard_by_front, heard_by_engine = asyncio.run(front())
    speaker.join()
    theirs.close()

    assert heard_by_front == sent
    assert heard_by_engine == [LOAD, BATCH, Unload("m"), Stop()]


MESSAGES = st.lists(st.one_of(st.builds(Unload, st.text(max_size=9)), st.just(BATCH), st.just(Stop())), max_size=9)


@settings(max_examples=25, deadline=None)
@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_messages_arrive_however_their_bytes_are_split(messages, pieces):
    async def scenario() -> list:
        channel, heard = Channel(to_engine), []
        ours, theirs = socket.socketpair()
        sending = BlockingChannel(theirs, from_engine)
        for message in messages:
            sending.send(message)
        theirs.shutdown(socket.SHUT_WR)
        with ours, theirs:
            written = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        channel._on_message = heard.append
        at = 0
        for number in range(len(written)):
            size = pieces[number % len(pieces)]
            channel.data_received(written[at : at + size])
            at += size
        return heard

    assert asyncio.run(scenario()) == messages


def frame(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("junk", "logged"),
    [
        (b"", ""),
        (b"\0\0", ""),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\0\0\0\5abcde", "Expected `object`"),
        (b"\0\0\0\x10abc", ""),
        *(
            (frame(msgspec.structs.replace(READY, **{name: value})), "Expected `")
            for name, value in [
                ("batch_seconds", 1e9),
                ("batch_seconds", float("nan")),
                ("slots", 1 << 30),
                ("slots", 0),
                ("sample_rate", 0),
                ("rtfx", float("inf")),
                ("weight_bytes", -1),
                ("padded_seconds", [-1.0]),
            ]
        ),
        (frame(msgspec.structs.replace(RESULT, infer_seconds=float("nan"))), "Expected `"),
    ],
)
def test_a_stream_that_ends_or_breaks_ends_the_conversation(junk, logged, caplog):
    async def front() -> list:
        ours, theirs = socket.socketpair()
        channel, heard = Channel(from_engine), []
        await channel.open(ours, heard.append)
        with theirs:
            theirs.sendall(junk)
            theirs.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(10):
                await channel.lost
            assert theirs.recv(1) == b""
        return heard

    assert asyncio.run(front()) == []
    assert [record.reason[: len(logged)] for record in caplog.records] == [logged] * bool(logged)
