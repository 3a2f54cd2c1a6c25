"""Transcripts as JSON objects: OpenAI's `json` and `verbose_json`, and a line of `steno transcribe`."""

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from transcripts.line_breaks import is_seen
from transcripts.logprobs import logprob, token_logprobs
from transcripts.timed_words import spread_words, text_of
from transcripts.transcript import Transcript, Word
from transcripts.transcription import Channel, Speech, Transcription, Turn, speaker_of, spoken_fields

_SPEECH = 0.5  # probability from which a frame is speech, as in OpenAI's server_vad


def as_json(result: Transcription, *, asks_language: bool, token_bytes: Sequence[bytes] | None) -> dict[str, Any]:
    """Return the object of `json`; with the text of each token, in UTF-8, it has their log-probabilities."""
    return whole(result, asks_language=asks_language, token_bytes=token_bytes) | _usage(result)


def as_verbose_json(result: Transcription, *, words: bool, segments: bool) -> dict[str, Any]:
    """Return the object of `verbose_json`, with the lists of words and segments that are asked for."""
    body = {
        "task": result.language.task,
        **result.language.fields,
        "duration": result.seconds,
        "text": result.text,
        "transcribed_seconds": result.coverage.transcribed,
        "skipped_seconds": result.coverage.skipped,
        "speech_without_text_seconds": result.coverage.speech_without_text,
        "rescued_seconds": result.coverage.rescued,
    }
    if result.is_truncated:
        body["truncated"] = True
    if result.tracks > 1:
        body |= {"tracks": result.tracks} | ({"track": result.track} if result.track else {})
    timed: dict[str, Any] = {}
    if words:
        listed = [word for channel in result.channels for word in _words(result, channel)]
        timed["words"] = sorted(listed, key=lambda word: word["start"]) if result.has_numbers else listed
    if segments:
        listed = [segment for channel in result.channels for segment in _segments(result, channel)]
        if result.has_numbers:
            listed.sort(key=lambda segment: segment["start"])
        timed["segments"] = [segment | {"id": number} for number, segment in enumerate(listed)]
    if not result.has_numbers:
        return body | _usage(result) | timed
    return body | timed | whole(result, asks_language=True, token_bytes=None) | _usage(result)


def as_diarized_json(result: Transcription) -> dict[str, Any]:
    """Return the object of `diarized_json`: what each speaker says, in the order of time. Channels are speakers."""
    segments = [diarized_segment(number, turn) for number, turn in enumerate(result.turns)]
    body = {"task": "transcribe", "duration": result.seconds, "text": result.text, "segments": segments}
    return body | _usage(result)


def diarized_segment(number: int, turn: Turn) -> dict[str, Any]:
    """Return a segment of `diarized_json`, which is an event of its stream too."""
    words = turn.words
    return {
        "type": "transcript.text.segment",
        "id": str(number),
        "start": words[0].start,
        "end": words[-1].end,
        "speaker": speaker_of(turn.channel),
        "text": turn.text,
    }


def as_line(name: str, result: Transcription) -> dict[str, Any]:
    """Return what `steno transcribe` writes of a file: the fields of its transcript, or of each channel's."""
    head = {"audio": name, "duration": result.seconds}
    channels = [_named(channel) | channel.transcript.as_dict() for channel in result.channels]
    if not result.has_numbers:
        return head | channels[0]
    return head | {
        "channels": [
            {"channel": channel.number} | fields for channel, fields in zip(result.channels, channels, strict=True)
        ]
    }


def whole(result: Transcription, *, asks_language: bool, token_bytes: Sequence[bytes] | None) -> dict[str, Any]:
    """Return the whole text and, of numbered channels, that of each; see `as_json`."""
    language = result.language.fields if asks_language else {}
    if not result.has_numbers:
        return {"text": result.text, **language, **_logprobs(result.channels[0], token_bytes)}
    channels = [
        {
            "channel": channel.number,
            "text": channel.transcript.text,
            **(channel.language.part_fields if asks_language else {}),
            **_logprobs(channel, token_bytes),
        }
        for channel in result.channels
    ]
    return {"text": result.text, **language, "channels": channels}


def described_word(word: Word) -> dict[str, Any]:
    """Return a word as `verbose_json` lists it."""
    return {"word": word.text.strip(), "start": word.start, "end": word.end, "confidence": word.confidence}


def _usage(result: Transcription) -> dict[str, Any]:
    """Return the length that was transcribed: silent channels are not counted."""
    return {"usage": {"type": "duration", "seconds": sum(channel.seconds for channel in result.channels)}}


def _logprobs(channel: Channel, token_bytes: Sequence[bytes] | None) -> dict[str, Any]:
    return {} if token_bytes is None else {"logprobs": token_logprobs(channel.transcript, token_bytes)}


def _named(channel: Channel) -> dict[str, Any]:
    language = channel.language
    return {} if language.code is None else {"language": language.code, "language_probability": language.probability}


def _number(channel: Channel) -> dict[str, Any]:
    return {} if channel.number is None else {"channel": channel.number}


def _words(result: Transcription, channel: Channel) -> list[dict[str, Any]]:
    words = spread_words(channel.transcript, result.seconds)
    return [described_word(word) | _number(channel) for word in words if is_seen(word.text)]


def _segments(result: Transcription, channel: Channel) -> list[dict[str, Any]]:
    segments = [_segment(words, channel.transcript, channel.speech) for words in result.segments(channel)]
    if languages := channel.language.segments:
        segments = [one | spoken_fields(spoken) for one, spoken in zip(segments, languages, strict=True)]
    return [segment | _number(channel) for segment in segments]


def _segment(words: Sequence[Word], transcript: Transcript, speech: Speech) -> dict[str, Any]:
    begin, end = words[0].token_span[0], words[-1].token_span[1]
    text = text_of(words)
    return {
        "id": 0,  # numbered when all are there
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


def _share_without_speech(speech: Speech, start: float, end: float) -> float:
    first = int(start / speech.frame_seconds)
    frames = speech.probabilities[first : max(first + 1, math.ceil(end / speech.frame_seconds))]
    return float(np.mean(frames < _SPEECH)) if len(frames) else 0.0  # a rounded start may be after the last frame
