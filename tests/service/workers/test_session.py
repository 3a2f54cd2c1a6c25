"""A worker's session in the main process."""

import asyncio
import tempfile

from models import Prompt
from service.dispatch.utterance import Lane
from service.shared_audio import Item
from service.workers.protocol import End, Failed, Identify, PartEntry, Transcribe
from service.workers.session import Session

PART = PartEntry(Item(0, 16_000), 1.0, "caller", None, Lane("model"), Prompt(), None)


def test_a_part_that_is_withdrawn_before_it_begins_gets_its_reply():
    """Both messages may come in one read; without the reply, the worker never frees the part's samples."""
    sent = []

    async def scenario():
        with tempfile.TemporaryFile() as memory:
            session = Session(None, memory.fileno(), sent.append)
            session.handle(Transcribe(1, None, 1.0, PART))
            session.handle(Identify(2, 0, PART))
            for call in (1, 2):
                session.handle(End(call))
            await session.close()

    asyncio.run(scenario())

    assert sent == [Failed(1, "CancelledError", ""), Failed(2, "CancelledError", "")]
