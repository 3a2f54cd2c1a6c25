"""`stream=true`: a transcript as server-sent events, a delta for each segment and then the whole."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from service.engine.protocol import Transcript
from service.http.logprobs import token_logprobs
from service.http.segments import split_segments


def event_stream(transcript: Transcript, seconds: float, spellings: Sequence[bytes] | None) -> Response:
    """Answer with events; the status is 200 only because the transcript is there.

    Args:
        transcript: What was heard.
        seconds: Length of the recording.
        spellings: What each token writes, for events with log-probabilities; None leaves them out.
    """
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    body = b"".join(_frames(transcript, seconds, spellings))
    return Response(body, headers=headers, media_type="text/event-stream; charset=utf-8")


def _frames(transcript: Transcript, seconds: float, spellings: Sequence[bytes] | None) -> Iterator[bytes]:
    def logprobs(span: tuple[int, int] | None = None) -> dict[str, Any]:
        return {} if spellings is None else {"logprobs": token_logprobs(transcript, spellings, span)}

    for delta, span in deltas(transcript):
        yield _frame({"type": "transcript.text.delta", "delta": delta, **logprobs(span)})
    usage = {"type": "duration", "seconds": seconds}
    yield _frame({"type": "transcript.text.done", "text": transcript.text, **logprobs(), "usage": usage})


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


def deltas(transcript: Transcript) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the text segment by segment, with its slice of the tokens; one after the other they are exactly all."""
    begin = end = token = 0
    for words in split_segments(transcript.words):
        for word in words:
            found = transcript.text.find(word.text, end)
            end = end if found < 0 else found + len(word.text)
        if end > begin:
            after = words[-1].token_span[1]
            yield transcript.text[begin:end], (token, after)
            begin, token = end, after
    if begin < len(transcript.text):
        yield transcript.text[begin:], (token, len(transcript.tokens))
