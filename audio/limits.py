"""Limits on the audio that is accepted."""

from dataclasses import dataclass

from audio.errors import AudioTooLongError, AudioTooShortError, UnsupportedFormatError

_MOST_SAMPLES_A_SECOND = 2 * 96_000  # of all channels, on average over the longest recording


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits on decoded audio. The size of a file in bytes is limited where it is received.

    Attributes:
        max_seconds: longest audio, counted in decoded frames, because headers may be wrong; shorter if it has more
            samples than stereo at 96 kHz.
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

    def check_decoded(self, frames: int, rate: float, channels: int) -> None:
        """Refuse audio when ``frames`` of ``channels`` at ``rate`` are decoded, and that is too much.

        A file of some megabytes may hold eight channels of four hours at 384 kHz. It would take a quarter of an hour to
        decode, so the samples of all channels are limited, too: as many as the longest recording has in stereo at
        96 kHz.

        Raises:
            AudioTooLongError: if it is.
        """
        if frames > self.max_seconds * rate:
            raise AudioTooLongError(f"the audio is longer than {self.max_seconds:g} s, the most accepted")
        if frames * channels > self.max_seconds * _MOST_SAMPLES_A_SECOND:
            most = self.max_seconds * _MOST_SAMPLES_A_SECOND / (rate * channels)
            raise AudioTooLongError(
                f"the audio is longer than {most:.0f} s, the most accepted with {channels} channels at {rate:g} Hz"
            )

    def check_shortest(self, seconds: float) -> None:
        """Refuse audio whose whole length of ``seconds`` is too short.

        Raises:
            AudioTooShortError: if it is.
        """
        if seconds < self.min_seconds:
            raise AudioTooShortError(
                f"the audio lasts {seconds:.3g} s, less than {self.min_seconds:g} s, the least accepted"
            )
