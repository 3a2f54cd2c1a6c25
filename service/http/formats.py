"""Renders a transcript; every format is a view of the same object, so `text` is the same in all of them.

What the object is may depend on the format: Canary is asked for times only where a format needs them (`prompts`).
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson
from starlette.responses import PlainTextResponse, Response

from audio.segment.cuts import Probabilities
from audio.segment.voice_activity import FRAME_SECONDS
from service.dispatch.source import Coverage
from service.engine.protocol import Transcript, Word
from service.http.logprobs import logprob, token_logprobs
from service.http.schemas import Granularity, ResponseFormat
from service.http.segments import split_segments
from service.http.subtitles import cues, srt, vtt
from service.http.timed_words import spread_words, timed_words
from service.languages import NAMES

UNKNOWN_LANGUAGE = "unknown"
_SPEECH = 0.5  # probability from which a frame is speech, as OpenAI's server_vad has it

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class Written:
    """What a text is.

    Attributes:
        task: Whether it is in the language that was spoken.
        language: ISO 639-1 code of what it is written in; None where nobody said and nothing is known.
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
    speech: Probabilities,
    coverage: Coverage,
) -> Response:
    """Answer in the format asked for.

    Args:
        transcript: What was heard.
        seconds: Length of the recording.
        response_format: One of the formats.
        granularities: What verbose_json lists with times.
        written: What the text is, for verbose_json.
        spellings: What each token writes, for json with log-probabilities; None leaves them out.
        speech: How likely each frame is speech, for the segments of verbose_json.
        coverage: What of the recording was heard, for verbose_json.
    """
    if response_format == "text":
        return PlainTextResponse(transcript.text + "\n")
    if response_format == "srt":  # text/plain, as OpenAI's is: its older clients read nothing else
        return PlainTextResponse(srt(cues(timed_words(transcript, seconds))))
    if response_format == "vtt":
        return PlainTextResponse(vtt(cues(timed_words(transcript, seconds))))
    usage = {"type": "duration", "seconds": seconds}
    if response_format == "json":
        logprobs = {} if spellings is None else {"logprobs": token_logprobs(transcript, spellings)}
        return json_response({"text": transcript.text, **logprobs, "usage": usage})
    body = verbose_head(written, seconds, transcript.text, coverage) | {"usage": usage}
    if "word" in granularities:
        body["words"] = [described_word(word) for word in spread_words(transcript, seconds)]
    if has_segments(granularities, written):
        body["segments"] = described_segments(transcript, seconds, speech)
    return json_response(body)


def verbose_head(written: Written, seconds: float, text: str, coverage: Coverage) -> dict[str, Any]:
    """Return what verbose_json says of a text as a whole, and of what was heard."""
    return {
        "task": written.task,
        "language": NAMES[written.language] if written.language else UNKNOWN_LANGUAGE,
        "duration": seconds,
        "text": text,
        "heard_seconds": coverage.heard,
        "skipped_seconds": coverage.skipped,
        "speech_without_text_seconds": coverage.speech_without_text,
    }


def has_segments(granularities: Sequence[Granularity], written: Written) -> bool:
    """Tell whether verbose_json lists segments."""
    return written.has_times and "segment" in granularities


def json_response(body: dict[str, Any]) -> Response:
    """Answer with an object."""
    return Response(orjson.dumps(body), media_type="application/json")


def described_word(word: Word) -> dict[str, Any]:
    """Return a word as verbose_json lists it."""
    return {"word": word.text, "start": word.start, "end": word.end, "confidence": word.confidence}


def described_segments(transcript: Transcript, seconds: float, speech: Probabilities) -> list[dict[str, Any]]:
    """Return the segments of a transcript as verbose_json lists them."""
    groups = split_segments(timed_words(transcript, seconds))
    return [_segment(number, words, transcript, speech) for number, words in enumerate(groups)]


def _segment(number: int, words: Sequence[Word], transcript: Transcript, speech: Probabilities) -> dict[str, Any]:
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
        "no_speech_prob": _share_without_speech(speech, words[0].start or 0.0, words[-1].end or 0.0),
    }


def _mean_logprob(confidence: Sequence[float]) -> float:
    """Mean log-probability; 0, which is certainty, of words without a token of their own."""
    return math.fsum(map(logprob, confidence)) / max(1, len(confidence))


def _share_without_speech(speech: Probabilities, start: float, end: float) -> float:
    first = int(start / FRAME_SECONDS)
    frames = speech[first : max(first + 1, math.ceil(end / FRAME_SECONDS))]
    return float(np.mean(frames < _SPEECH)) if len(frames) else 0.0  # rounded, a word may end after the last frame
