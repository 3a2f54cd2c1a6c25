"""Why audio is refused: one class for each thing that a caller can do about it."""

from typing import ClassVar


class AudioError(ValueError):
    """Audio that cannot be transcribed. The message is written for the one who sent it.

    Attributes:
        code: a name that programs can rely on.
    """

    code: ClassVar[str]


class UnsupportedFormatError(AudioError):
    """Not a container, codec, channel count or sample rate that is read here."""

    code = "unsupported_format"


class InvalidAudioError(AudioError):
    """A supported format, but damaged or forged beyond use."""

    code = "invalid_audio"


class AudioTooShortError(AudioError):
    """Less audio than the limits ask for."""

    code = "audio_too_short"


class AudioTooLongError(AudioError):
    """More audio than the limits allow."""

    code = "audio_too_long"
