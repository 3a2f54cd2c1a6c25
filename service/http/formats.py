"""Rendering a transcript. All formats render the same object, so `text` is the same in all of them.

With Canary the object may depend on the format: it writes times only for formats that need them (`prompts`).
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson
from starlette.responses import PlainTextResponse, Response

from audio.segment.cuts import SpeechProbabilities
from audio.segment.voice_activity import FRAME_SECONDS
from service.dispatch.cut_recording import Coverage
from service.http.schemas import Granularity, LanguageSource, ResponseFormat
from service.text_language import DetectedLanguage
from transcripts.languages import NAMES
from transcripts.logprobs import logprob, token_logprobs
from transcripts.segments import split_segments
from transcripts.subtitles import USUAL, CueSize, cues, srt, vtt
from transcripts.timed_words import spread_words, text_of, timed_words
from transcripts.transcript import Transcript, Word

UNKNOWN_LANGUAGE = "unknown"
_SPEECH = 0.5  # probability from which a frame is speech, as in OpenAI's server_vad

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class TextLanguage:
    """Language and task of a text.

    Attributes:
        task: transcribe, or translate if the text is not in the spoken language.
        language: ISO 639-1 code of the text's language; None if it is not known, or not detected yet.
        has_times: whether the model gives times of words.
        source: how the language is known.
        probability: probability of a detected language.
        languages: detected language of each segment.
    """

    task: Task
    language: str | None
    has_times: bool
    source: LanguageSource = "request"
    probability: float | None = None
    languages: Sequence[DetectedLanguage | None] = ()

    @property
    def part_fields(self) -> dict[str, Any]:
        """Fields of the language for a part of the text."""
        return _language_fields(self.language, self.probability)

    @property
    def language_fields(self) -> dict[str, Any]:
        """Fields of the language for the answer."""
        source = {"language_source": self.source} if self.language else {}
        languages = [{"code": self.language}] if self.language and self.source != "assumed" else []
        return _language_fields(self.language, self.probability) | source | {"languages": languages}


def render(
    transcript: Transcript,
    *,
    seconds: float,
    response_format: ResponseFormat,
    granularities: Sequence[Granularity],
    text_language: TextLanguage,
    token_bytes: Sequence[bytes] | None,
    speech: SpeechProbabilities,
    coverage: Coverage,
    asks_language: bool = False,
    size: CueSize = USUAL,
) -> Response:
    """Answer in the format asked for.

    Args:
        transcript: the transcript.
        seconds: length of the recording.
        response_format: one of the formats.
        granularities: what verbose_json lists with times.
        text_language: language and task, for verbose_json.
        token_bytes: the text of each token, for json with log-probabilities; None leaves them out.
        speech: probability of speech in each frame, for the segments of verbose_json.
        coverage: how much of the recording was transcribed, for verbose_json.
        asks_language: whether json has the language too.
        size: size of a cue of srt and vtt.
    """
    if response_format == "text":
        return PlainTextResponse(transcript.text + "\n")
    if response_format == "srt":  # text/plain, as from OpenAI, whose older clients read nothing else
        return PlainTextResponse(srt(cues(timed_words(transcript, seconds), size)))
    if response_format == "vtt":
        return PlainTextResponse(vtt(cues(timed_words(transcript, seconds), size)))
    usage = {"type": "duration", "seconds": seconds}
    if response_format == "json":
        logprobs = {} if token_bytes is None else {"logprobs": token_logprobs(transcript, token_bytes)}
        language = text_language.language_fields if asks_language else {}
        return json_response({"text": transcript.text, **language, **logprobs, "usage": usage})
    body = verbose_head(text_language, seconds, transcript.text, coverage) | {"usage": usage}
    if "word" in granularities:
        body["words"] = [described_word(word) for word in spread_words(transcript, seconds)]
    if has_segments(granularities, text_language):
        body["segments"] = described_segments(transcript, seconds, speech, text_language.languages)
    return json_response(body)


def verbose_head(text_language: TextLanguage, seconds: float, text: str, coverage: Coverage) -> dict[str, Any]:
    """Return the fields of verbose_json for the whole text."""
    return {
        "task": text_language.task,
        **text_language.language_fields,
        "duration": seconds,
        "text": text,
        "transcribed_seconds": coverage.transcribed,
        "skipped_seconds": coverage.skipped,
        "speech_without_text_seconds": coverage.speech_without_text,
    }


def has_segments(granularities: Sequence[Granularity], text_language: TextLanguage) -> bool:
    """Return whether verbose_json lists segments."""
    return text_language.has_times and "segment" in granularities


def json_response(body: dict[str, Any]) -> Response:
    """Return an answer with an object as JSON."""
    return Response(orjson.dumps(body), media_type="application/json")


def described_word(word: Word) -> dict[str, Any]:
    """Return a word as verbose_json lists it."""
    return {"word": word.text.strip(), "start": word.start, "end": word.end, "confidence": word.confidence}


def segment_texts(transcript: Transcript, seconds: float) -> list[str]:
    """Return the texts of the segments of a transcript."""
    return [text_of(words) for words in split_segments(timed_words(transcript, seconds))]


def described_segments(
    transcript: Transcript,
    seconds: float,
    speech: SpeechProbabilities,
    languages: Sequence[DetectedLanguage | None] = (),
) -> list[dict[str, Any]]:
    """Return the segments of a transcript as verbose_json lists them, with their detected languages."""
    groups = split_segments(timed_words(transcript, seconds))
    segments = [_segment(number, words, transcript, speech) for number, words in enumerate(groups)]
    if languages:
        segments = [one | detected_fields(detected) for one, detected in zip(segments, languages, strict=True)]
    return segments


def detected_fields(detected: DetectedLanguage | None) -> dict[str, Any]:
    """Return the fields of a detected language."""
    return _language_fields(*(detected or (None, None)))


def _language_fields(code: str | None, probability: float | None) -> dict[str, Any]:
    """Return the fields of a language, by OpenAI's name; no field is null, because clients fail on it."""
    language = {"language": NAMES[code] if code else UNKNOWN_LANGUAGE}
    return language if probability is None else language | {"language_probability": probability}


def _segment(number: int, words: Sequence[Word], transcript: Transcript, speech: SpeechProbabilities) -> dict[str, Any]:
    begin, end = words[0].token_span[0], words[-1].token_span[1]
    text = text_of(words)
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
    """Return the mean log-probability; 0, which is certainty, for words without tokens."""
    return math.fsum(map(logprob, confidence)) / max(1, len(confidence))


def _share_without_speech(speech: SpeechProbabilities, start: float, end: float) -> float:
    first = int(start / FRAME_SECONDS)
    frames = speech[first : max(first + 1, math.ceil(end / FRAME_SECONDS))]
    return float(np.mean(frames < _SPEECH)) if len(frames) else 0.0  # a rounded start may be after the last frame
