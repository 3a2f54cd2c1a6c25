"""What answers hold, for the API's description; transcripts/json_formats.py writes them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from transcripts.transcription import LanguageSource


class Usage(BaseModel):
    """The usage: seconds of audio."""

    type: Literal["duration"] = "duration"
    seconds: float


class TokenLogprob(BaseModel):
    """A token, its text in UTF-8, and the natural logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class Language(BaseModel):
    """A language in ISO 639-1, as OpenAI's API lists it."""

    code: str


class Channel(BaseModel):
    """The transcript of one channel, with `multichannel`."""

    channel: Annotated[int, Field(description="Counted from 1.")]
    text: str
    logprobs: list[TokenLogprob] | SkipJsonSchema[None] = None
    language: str | SkipJsonSchema[None] = None
    language_probability: float | SkipJsonSchema[None] = None


class Transcription(BaseModel):
    """`response_format=json`; fields except `text` and `usage` are there only on request."""

    text: str
    language: Annotated[
        str | SkipJsonSchema[None],
        Field(description="With `language=auto` or `languages[]`, like the next three fields."),
    ] = None
    language_source: LanguageSource | SkipJsonSchema[None] = None
    language_probability: float | SkipJsonSchema[None] = None
    languages: Annotated[
        list[Language] | SkipJsonSchema[None],
        Field(description="The language as a list; empty if it is unknown or assumed."),
    ] = None
    logprobs: list[TokenLogprob] | SkipJsonSchema[None] = None
    channels: list[Channel] | SkipJsonSchema[None] = None
    usage: Usage


class TimedWord(BaseModel):
    """A word with its times in seconds, and the lowest probability of its tokens, null if it has no tokens."""

    word: str
    start: float
    end: float
    confidence: float | None
    channel: Annotated[int | SkipJsonSchema[None], Field(description="With `multichannel`, counted from 1.")] = None


class Segment(BaseModel):
    """A stretch of speech."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: Annotated[float, Field(description="Mean log-probability of its tokens.")]
    compression_ratio: float
    no_speech_prob: Annotated[float, Field(description="Share of the segment without speech, by the detector.")]
    channel: Annotated[int | SkipJsonSchema[None], Field(description="With `multichannel`, counted from 1.")] = None
    language: Annotated[str | SkipJsonSchema[None], Field(description="If it was detected or identified.")] = None
    language_probability: float | SkipJsonSchema[None] = None


class VerboseTranscription(BaseModel):
    """`response_format=verbose_json`."""

    task: Literal["transcribe", "translate"]
    language: Annotated[str, Field(description="English name of the text's language, or `unknown`.")]
    language_source: Annotated[
        LanguageSource | SkipJsonSchema[None],
        Field(
            description="How the language is known: from the request, from the model, which has only one or writes it, "
            "detected from the text, identified in the audio, or assumed."
        ),
    ] = None
    language_probability: Annotated[
        float | SkipJsonSchema[None], Field(description="If the language was detected or identified.")
    ] = None
    languages: Annotated[
        list[Language], Field(description="The language as a list; empty if it is unknown or assumed.")
    ]
    duration: float
    text: str
    words: list[TimedWord] | SkipJsonSchema[None] = None
    segments: list[Segment] | SkipJsonSchema[None] = None
    channels: list[Channel] | SkipJsonSchema[None] = None
    transcribed_seconds: Annotated[
        float, Field(description="Audio that the model transcribed. An extension, like the next three.")
    ]
    skipped_seconds: Annotated[float, Field(description="Audio that was left out, because no speech was detected.")]
    speech_without_text_seconds: Annotated[
        float, Field(description="Speech, by the detector, in pieces for which the model wrote nothing.")
    ]
    rescued_seconds: Annotated[
        float,
        Field(description="Speech that the model passed over at first, and that got words when transcribed again."),
    ]
    track: Annotated[
        int | SkipJsonSchema[None],
        Field(description="Of a file with several audio tracks, the one that was transcribed, from 1. An extension."),
    ] = None
    tracks: Annotated[
        int | SkipJsonSchema[None], Field(description="The number of audio tracks, if there are several.")
    ] = None
    truncated: Annotated[
        bool | SkipJsonSchema[None],
        Field(description="True if the file is known to hold, or to have held, more than was decoded. An extension."),
    ] = None
    usage: Usage


class DiarizedSegment(BaseModel):
    """What a speaker says at a stretch; speakers are the channels, A to H."""

    type: Literal["transcript.text.segment"]
    id: str
    start: float
    end: float
    speaker: str
    text: str


class DiarizedTranscription(BaseModel):
    """`response_format=diarized_json`."""

    task: Literal["transcribe"]
    duration: float
    text: str
    segments: list[DiarizedSegment]
    usage: Usage
