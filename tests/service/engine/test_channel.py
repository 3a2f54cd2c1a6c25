import asyncio
import socket
import threading

import pytest

from models.prompt import Prompt
from models.transcript import Transcript, Word
from service.engine.channel import EngineChannel, FrontChannel
from service.engine.protocol import (
    NOTHING_ASKED,
    Batch,
    Failure,
    FailureKind,
    Heartbeat,
    Item,
    Load,
    Result,
    Stop,
    Unload,
)

LOAD = Load("m", "m.nemo", "cpu", "float32", [1.0, 2.0], None, 2)
BATCH = Batch(7, "m", "ctc", [Item(0, 16_000), Item(16_000, 8_000)], [NOTHING_ASKED, Prompt("de", "en", False, True)])
RESULT = Result(
    7,
    [Transcript("hé", [1], [0.5], [Word("hé", 0.0, 0.1, None, (0, 1)), Word("ho", None, None, 0.5, (1, 1))])],
    0.1,
    2.0,
)


def test_every_message_arrives_as_it_was_sent():
    ours, theirs = socket.socketpair()
    engine = EngineChannel(theirs)
    failures = Failure(None, FailureKind.LOAD, "no", "m"), Failure(7, FailureKind.BATCH, "x" * 300_000)
    sent = [Heartbeat(), RESULT, *failures]

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


@pytest.mark.parametrize("junk", [b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5abcde", b"\0\0\0\x10abc"])
def test_a_stream_that_ends_or_breaks_ends_the_conversation(junk):
    async def front() -> list:
        ours, theirs = socket.socketpair()
        channel = await FrontChannel.open(ours)
        theirs.sendall(junk)
        theirs.close()
        heard = [message async for message in channel.messages()]
        channel.close()
        return heard

    assert asyncio.run(front()) == []
