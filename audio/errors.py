"""Errors that refuse audio: a class for each remedy that the sender has."""

from typing import ClassVar


class AudioError(ValueError):
    """Audio that cannot be transcribed. The message is for the sender of the audio."""

    code: ClassVar[str]  # a name that programs can rely on


class UnsupportedFormatError(AudioError):
    """The container, codec, channel count or sample rate is not supported, or there is no audio."""

    code = "unsupported_format"


class InvalidAudioError(AudioError):
    """The file is empty or damaged, or takes too much time or memory to decode."""

    code = "invalid_audio"


class AudioTooShortError(AudioError):
    """The audio is shorter than the limits allow."""

    code = "audio_too_short"


class AudioTooLongError(AudioError):
    """The audio is longer than the limits allow."""

    code = "audio_too_long"


class DecoderCrashedError(InvalidAudioError):
    """The file cost two processes that decode: they died of it."""

    code = "decoder_crashed"
