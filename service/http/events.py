"""`stream=true`: a transcript as server-sent events, a delta for each segment and then the whole."""

from collections.abc import Iterator
from typing import Any

import orjson
from starlette.responses import Response

from service.engine.protocol import Transcript
from service.http.segments import split_segments


def event_stream(transcript: Transcript, seconds: float) -> Response:
    """Answer with events; the status is 200 only because the transcript is there."""
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    body = b"".join(_frames(transcript, seconds))
    return Response(body, headers=headers, media_type="text/event-stream; charset=utf-8")


def _frames(transcript: Transcript, seconds: float) -> Iterator[bytes]:
    for delta in deltas(transcript):
        yield _frame({"type": "transcript.text.delta", "delta": delta})
    usage = {"type": "duration", "seconds": seconds}
    yield _frame({"type": "transcript.text.done", "text": transcript.text, "usage": usage})


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


def deltas(transcript: Transcript) -> Iterator[str]:
    """Yield the text segment by segment; one after the other they are exactly the text."""
    begin = end = 0
    for words in split_segments(transcript.words):
        for word in words:
            found = transcript.text.find(word.text, end)
            end = end if found < 0 else found + len(word.text)
        if end > begin:
            yield transcript.text[begin:end]
            begin = end
    if begin < len(transcript.text):
        yield transcript.text[begin:]
