"""`stream=true`: a transcript as server-sent events, deltas as parts arrive and then the whole."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.http.formats import described_word, detected_fields
from service.text_language import DetectedLanguage
from transcripts.logprobs import token_logprobs
from transcripts.scripts import separator
from transcripts.segments import split_segments
from transcripts.subtitle_stream import SubtitleStream
from transcripts.subtitles import CueSize
from transcripts.timed_words import text_of
from transcripts.transcript import Transcript, Word


class EventStream(StreamingResponse):
    """An answer of events.

    Attributes:
        resources: closed when the answer was sent, or cannot be.
    """

    def __init__(self, frames: AsyncIterator[bytes]) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(frames, headers=headers, media_type="text/event-stream; charset=utf-8")
        self.resources = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        async with self.resources:
            await super().__call__(scope, receive, send)


DONE = "transcript.text.done"
_HEARTBEAT = b": waiting\n\n"


async def with_heartbeats(frames: AsyncGenerator[bytes, None], seconds: float) -> AsyncIterator[bytes]:
    """Yield frames, and a comment after ``seconds`` without any, because proxies close silent connections."""
    following = asyncio.ensure_future(anext(frames))
    try:
        while True:
            await asyncio.wait({following}, timeout=seconds)
            if not following.done():
                yield _HEARTBEAT
                continue
            try:
                ready = following.result()
            except StopAsyncIteration:
                return
            yield ready
            following = asyncio.ensure_future(anext(frames))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await frames.aclose()


def delta_frames(part: Transcript, token_bytes: Sequence[bytes] | None, before: str) -> Iterator[bytes]:
    """Yield an event for each segment of a part.

    Args:
        part: its transcript.
        token_bytes: the text of each token, for log-probabilities; None leaves them out.
        before: the text sent before it, or the end of that text; empty for the first part.
    """
    lead, is_first = separator(before, part.text), not before
    for delta in deltas(part):
        yield frame(delta_event(delta, part, token_bytes, is_first=is_first) | {"delta": lead + delta.text})
        lead = ""


def delta_event(
    delta: "Delta", part: Transcript, token_bytes: Sequence[bytes] | None, *, is_first: bool
) -> dict[str, Any]:
    """Return the event of a stretch of a part; see `delta_frames`."""
    event: dict[str, Any] = {"type": "transcript.text.delta", "delta": delta.text}
    if token_bytes is not None:
        event["logprobs"] = token_logprobs(part, token_bytes, delta.token_span, begins=is_first)
    return event


def segment_frames(
    part: Sequence[Word], before: int, languages: Sequence[DetectedLanguage | None], *, with_words: bool
) -> Iterator[bytes]:
    """Yield an event with times for each segment of a part, in the shape of OpenAI's events for speakers.

    Args:
        part: its words, with times of the recording.
        before: number of segments before the part.
        languages: detected language of each segment; empty if none is wanted.
        with_words: whether to add the words.
    """
    for place, words in enumerate(split_segments(part)):
        event = segment_event(before + place, words, with_words=with_words)
        yield frame(event | (detected_fields(languages[place]) if languages else {}))


def segment_event(number: int, words: Sequence[Word], *, with_words: bool) -> dict[str, Any]:
    """Return the event of a segment; see `segment_frames`."""
    event = {
        "type": "transcript.text.segment",
        "id": str(number),
        "start": words[0].start,
        "end": words[-1].end,
        "text": text_of(words),
        "speaker": "",  # required by clients; speakers within a channel are not distinguished
    }
    return event | ({"words": [described_word(word) for word in words]} if with_words else {})


def done_frame(
    transcript: Transcript, seconds: float, token_bytes: Sequence[bytes] | None, language: dict[str, Any]
) -> bytes:
    """Return the last event: the whole transcript, the length of the recording, and fields of its language.

    It has no `usage`: in OpenAI's schema, that of a stream counts tokens.
    """
    logprobs = {} if token_bytes is None else {"logprobs": token_logprobs(transcript, token_bytes)}
    return frame({"type": DONE, "text": transcript.text, **language, **logprobs, "duration": seconds})


def frame(event: dict[str, Any] | bytes) -> bytes:
    """Return the bytes of an event, given as an object or as JSON."""
    return b"data: %b\n\n" % (orjson.dumps(event) if isinstance(event, dict) else event)


def subtitles_of(response_format: str, size: CueSize) -> SubtitleStream | None:
    """Return a stream of subtitles for a format; None if the format is not one of subtitles."""
    return SubtitleStream(is_vtt=response_format == "vtt", size=size) if response_format in ("srt", "vtt") else None


def shown(cues: str) -> Iterator[bytes]:
    """Yield an event with cues, if there are any."""
    if cues:
        yield frame({"type": "transcript.text.delta", "delta": cues})


class Delta(NamedTuple):
    """A stretch of a transcript: its text, its slice of the tokens, and its words."""

    text: str
    token_span: tuple[int, int]
    words: list[Word]


def deltas(transcript: Transcript) -> Iterator[Delta]:
    """Yield the text segment by segment; joined, they are exactly the text."""
    begin = end = token = 0
    for words in split_segments(transcript.words):
        for word in words:
            found = transcript.text.find(word.text, end)
            end = end if found < 0 else found + len(word.text)
        if end > begin:
            after = words[-1].token_span[1]
            yield Delta(transcript.text[begin:end], (token, after), words)
            begin, token = end, after
    if begin < len(transcript.text):
        yield Delta(transcript.text[begin:], (token, len(transcript.tokens)), [])
