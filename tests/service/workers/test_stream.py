import asyncio
import socket

from hypothesis import given, settings
from hypothesis import strategies as st

from service.workers.protocol import BodyPiece, End, FromWorker, UseModel
from service.workers.stream import Stream, from_worker, to_worker

MESSAGES = st.lists(
    st.one_of(
        st.builds(End, st.integers(0, 9), st.booleans()),
        st.builds(UseModel, st.text(max_size=9), st.booleans()),
        st.builds(BodyPiece, st.integers(0, 9), st.binary(max_size=99), st.booleans()),
    ),
    max_size=9,
)


@settings(max_examples=25, deadline=None)
@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_messages_arrive_however_their_bytes_are_split(messages, pieces):
    async def scenario() -> list[FromWorker]:
        sent: list[bytes] = []
        writing, arrived = Stream(to_worker), []
        writing._transport = type("Transport", (), {"write": sent.append, "is_closing": lambda _=None: False})
        for message in messages:
            writing.send(message)
        writing._flush()
        reading = Stream(from_worker)
        reading._on_message = arrived.append
        whole, at = b"".join(sent), 0
        while at < len(whole):
            size = pieces[at % len(pieces)]
            reading.data_received(whole[at : at + size])
            at += size
        return arrived

    assert asyncio.run(scenario()) == messages


def test_a_stream_ends_for_both_when_one_end_sends_nonsense():
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            stream = Stream(from_worker)
            await stream.open(ours, lambda _: None)
            theirs.sendall(b"\xff\xff\xff\xff nonsense")
            async with asyncio.timeout(10):
                await stream.lost
            assert theirs.recv(1) == b""

    asyncio.run(scenario())
