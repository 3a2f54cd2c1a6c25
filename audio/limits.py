"""Limits on the audio that is accepted."""

from dataclasses import dataclass

from audio.errors import AudioTooLongError, AudioTooShortError, UnsupportedFormatError


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits on decoded audio. The size of a file in bytes is limited where it is received.

    Attributes:
        max_seconds: longest audio, counted in decoded frames, because headers may be wrong.
        min_seconds: shortest audio.
        max_channels: most channels.
        min_rate: lowest sample rate in Hz.
        max_rate: highest sample rate in Hz.
    """

    max_seconds: float = 14_400.0
    min_seconds: float = 0.1
    max_channels: int = 8
    min_rate: int = 1_000
    max_rate: int = 384_000

    def check_form(self, channels: int, rate: int) -> None:
        """Refuse channels and rates outside the limits, before samples take memory.

        Raises:
            UnsupportedFormatError: if there are too many channels, or the sample rate is out of range.
        """
        if channels > self.max_channels:
            raise UnsupportedFormatError(f"the audio has {channels} channels; at most {self.max_channels} are accepted")
        if not self.min_rate <= rate <= self.max_rate:
            raise UnsupportedFormatError(
                f"the sample rate is {rate} Hz; from {self.min_rate} to {self.max_rate} Hz are accepted"
            )

    def check_longest(self, seconds: float) -> None:
        """Refuse audio when ``seconds`` of it are decoded and that is too long.

        Raises:
            AudioTooLongError: if it is.
        """
        if seconds > self.max_seconds:
            raise AudioTooLongError(f"the audio is longer than {self.max_seconds:g} s, the most accepted")

    def check_shortest(self, seconds: float) -> None:
        """Refuse audio whose whole length of ``seconds`` is too short.

        Raises:
            AudioTooShortError: if it is.
        """
        if seconds < self.min_seconds:
            raise AudioTooShortError(
                f"the audio lasts {seconds:.3g} s, less than {self.min_seconds:g} s, the least accepted"
            )
