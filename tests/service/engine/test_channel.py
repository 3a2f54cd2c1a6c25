import asyncio
import dataclasses
import socket
import threading

import numpy as np
import pytest

from models.prompt import DEFAULT_PROMPT, Prompt
from models.transcript import FlatTranscripts, Transcript, Word
from service.engine.channel import EngineChannel, FrontChannel
from service.engine.protocol import (
    Batch,
    Failure,
    FailureKind,
    Heartbeat,
    Item,
    Load,
    LoadFailure,
    Result,
    Stop,
    Unload,
)

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
    engine = EngineChannel(theirs)
    failures = LoadFailure("m", "no"), Failure(7, FailureKind.BATCH, "x" * 300_000)
    sent = [Heartbeat(), RESULT, Result(8, FLAT, 0.1, 2.0), *failures]

    async def front() -> tuple[list, list]:
        channel = await FrontChannel.open(ours)
        for message in (LOAD, BATCH, Unload("m"), Stop()):
            channel.send(message)
        heard = []
        async for message in channel.messages():
            heard.append(message)
            if len(heard) == len(sent):
                break
        channel.close()
        return heard, await asyncio.to_thread(lambda: list(engine.messages()))

    speaker = threading.Thread(target=lambda: [engine.send(message) for message in sent])
    speaker.start()
    heard_by_front, heard_by_engine = asyncio.run(front())
    speaker.join()
    theirs.close()

    assert heard_by_front == sent
    assert heard_by_engine == [LOAD, BATCH, Unload("m"), Stop()]


@pytest.mark.parametrize(
    ("junk", "logged"),
    [
        (b"", ""),
        (b"\0\0", ""),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\0\0\0\5abcde", "Expected `object`"),
        (b"\0\0\0\x10abc", ""),
    ],
)
def test_a_stream_that_ends_or_breaks_ends_the_conversation(junk, logged, caplog):
    async def front() -> list:
        ours, theirs = socket.socketpair()
        channel = await FrontChannel.open(ours)
        theirs.sendall(junk)
        theirs.close()
        heard = [message async for message in channel.messages()]
        channel.close()
        return heard

    assert asyncio.run(front()) == []
    assert [record.reason[: len(logged)] for record in caplog.records] == [logged] * bool(logged)
