"""Renders a transcript; every format is a view of the same object, so `text` is the same in all of them."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from starlette.responses import PlainTextResponse, Response

from service.engine.protocol import Transcript, Word
from service.http.logprobs import token_logprobs
from service.http.schemas import Granularity, ResponseFormat
from service.http.segments import split_segments
from service.http.subtitles import cues, srt, vtt
from service.http.timed_words import timed_words
from service.languages import NAMES

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class Written:
    """What a text is.

    Attributes:
        task: Whether it is in the language that was spoken.
        language: ISO 639-1 code of what it is written in; None where that is not known.
        has_times: Whether the model can say when words are said.
    """

    task: Task
    language: str | None
    has_times: bool


def render(
    transcript: Transcript,
    *,
    seconds: float,
    response_format: ResponseFormat,
    granularities: Sequence[Granularity],
    written: Written,
    spellings: Sequence[bytes] | None,
) -> Response:
    """Answer in the format asked for.

    Args:
        transcript: What was heard.
        seconds: Length of the recording.
        response_format: One of the formats.
        granularities: What verbose_json lists with times.
        written: What the text is, for verbose_json.
        spellings: What each token writes, for json with log-probabilities; None leaves them out.
    """
    if response_format == "text":
        return PlainTextResponse(transcript.text + "\n")
    if response_format == "srt":
        return Response(srt(cues(timed_words(transcript, seconds))), media_type="application/x-subrip; charset=utf-8")
    if response_format == "vtt":
        return Response(vtt(cues(timed_words(transcript, seconds))), media_type="text/vtt; charset=utf-8")
    usage = {"type": "duration", "seconds": seconds}
    if response_format == "json":
        logprobs = {} if spellings is None else {"logprobs": token_logprobs(transcript, spellings)}
        return _json({"text": transcript.text, **logprobs, "usage": usage})
    return _json(
        {
            "task": written.task,
            "language": NAMES.get(written.language) if written.language else None,
            "duration": seconds,
            "text": transcript.text,
            "words": [_word(word) for word in transcript.words] if "word" in granularities else None,
            "segments": _segments(transcript, seconds) if written.has_times and "segment" in granularities else None,
            "usage": usage,
        }
    )


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def _word(word: Word) -> dict[str, Any]:
    return {"word": word.text, "start": word.start, "end": word.end, "confidence": word.confidence}


def _segments(transcript: Transcript, seconds: float) -> list[dict[str, Any]]:
    groups = split_segments(timed_words(transcript, seconds))
    return [_segment(number, words, transcript) for number, words in enumerate(groups)]


def _segment(number: int, words: Sequence[Word], transcript: Transcript) -> dict[str, Any]:
    begin, end = words[0].token_span[0], words[-1].token_span[1]
    text = " ".join(word.text for word in words)
    return {
        "id": number,
        "seek": 0,
        "start": words[0].start,
        "end": words[-1].end,
        "text": text,
        "tokens": transcript.tokens[begin:end],
        "temperature": 0.0,
        "avg_logprob": _mean_logprob(transcript.token_confidence[begin:end]),
        "compression_ratio": len(text.encode()) / len(zlib.compress(text.encode())),
        "no_speech_prob": None,
    }


def _mean_logprob(confidence: Sequence[float]) -> float | None:
    """Mean log-probability; None where nothing is known, or a probability is too small to have a logarithm."""
    if not confidence or min(confidence) <= 0:
        return None
    return math.fsum(map(math.log, confidence)) / len(confidence)
