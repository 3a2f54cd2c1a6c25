import asyncio
import dataclasses
import itertools
import os
import resource
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
        heard, all_heard = [], asyncio.Event()

        def hear(message) -> None:
            heard.append(message)
            if len(heard) == len(sent):
                all_heard.set()

        channel = Channel(ours, from_engine, hear)
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
    written = b"".join(map(frame, messages))

    async def scenario() -> list:
        ours, theirs = socket.socketpair()
        heard, at = [], 0
        channel = Channel(ours, to_engine, heard.append)
        with theirs:
            for size in itertools.cycle(pieces):
                if at >= len(written):
                    break
                theirs.sendall(written[at : at + size])
                at += size
                await asyncio.sleep(0)
        await channel.lost
        return heard

    assert asyncio.run(scenario()) == messages


MANY = 2000  # more than a socket holds


def test_descriptors_arrive_with_their_messages_though_the_socket_is_full_meanwhile():
    open_before = len(os.listdir("/proc/self/fd"))

    async def scenario() -> list[tuple[str, bytes | None]]:
        ours, theirs = socket.socketpair()
        heard = []

        def hear(message: Unload) -> None:
            descriptor = receiving.take_descriptor() if message.model else None
            heard.append((message.model, descriptor and os.pread(descriptor, 9, 0)))
            if descriptor:
                os.close(descriptor)

        receiving, sending = Channel(ours, to_engine, hear), Channel(theirs, to_engine, lambda _: None)
        for number in range(MANY):
            with os.fdopen(os.memfd_create("test"), "wb", 0) as file:
                file.write(b"%d" % number)
                sending.send(Unload(str(number)), file.fileno())
            sending.send(Unload(""))
        sending.close()
        await receiving.lost
        return heard

    heard = asyncio.run(scenario())

    assert heard[::2] == [(str(number), b"%d" % number) for number in range(MANY)]
    assert heard[1::2] == [("", None)] * MANY
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_descriptor_for_which_this_process_has_no_room_is_none_and_later_ones_arrive():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def scenario() -> list[tuple[str, bool]]:
        ours, theirs = socket.socketpair()
        heard, arrived = [], asyncio.Queue()
        receiving = Channel(ours, to_engine, arrived.put_nowait)
        sending = Channel(theirs, to_engine, lambda _: None)
        for name in ("none", "some"):
            sending.send(Unload(name), theirs.fileno())
            await asyncio.sleep(0)  # it is sent
            if name == "none":
                os.close(lowest := os.dup(theirs.fileno()))  # all below it are open
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
            await arrived.get()
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            descriptor = receiving.take_descriptor()
            heard.append((name, descriptor is not None))
            if descriptor is not None:
                os.close(descriptor)
        sending.close()
        await receiving.lost
        return heard

    try:
        assert asyncio.run(scenario()) == [("none", False), ("some", True)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_is_under_way_when_a_channel_ends_leaves_no_descriptor():
    open_before = len(os.listdir("/proc/self/fd"))

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        receiving, sending = Channel(ours, to_engine, lambda _: None), Channel(theirs, to_engine, lambda _: None)
        for _ in range(MANY):
            sending.send(Stop(), theirs.fileno())
        await asyncio.sleep(0)
        receiving.close()
        await sending.lost

    asyncio.run(scenario())

    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_channel_whose_end_nobody_waits_for_any_more_closes_its_socket():
    async def scenario() -> bytes:
        ours, theirs = socket.socketpair()
        channel = Channel(ours, to_engine, lambda _: None)
        channel.lost.cancel()
        channel.send(Stop())
        channel.close()
        theirs.settimeout(10)
        with theirs:
            return theirs.recv(1 << 16)[4:] + theirs.recv(1)

    assert asyncio.run(scenario()) == msgspec.msgpack.encode(Stop())


def test_a_message_that_is_not_handled_ends_the_conversation_and_is_not_given_again(caplog):
    async def scenario() -> list:
        ours, theirs = socket.socketpair()
        heard = []

        def hear(message) -> None:
            heard.append(message)
            raise ArithmeticError

        channel = Channel(ours, to_engine, hear)
        with theirs:
            theirs.sendall(frame(Unload("a")) + frame(Stop()))
            async with asyncio.timeout(10):
                await channel.lost
            assert theirs.recv(1) == b""
        return heard

    assert asyncio.run(scenario()) == [Unload("a")]
    assert "was not handled" in caplog.text


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
        heard = []
        channel = Channel(ours, from_engine, heard.append)
        with theirs:
            theirs.sendall(junk)
            theirs.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(10):
                await channel.lost
            assert theirs.recv(1) == b""
        return heard

    assert asyncio.run(front()) == []
    assert [record.reason[: len(logged)] for record in caplog.records] == [logged] * bool(logged)
