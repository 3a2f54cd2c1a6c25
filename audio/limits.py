"""Limits on the audio that is accepted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audio.errors import AudioTooLongError, AudioTooShortError, InvalidAudioError, UnsupportedFormatError

if TYPE_CHECKING:
    from audio.samples import Samples  # NumPy, which `steno --help` need not wait for

MOST_CHANNELS = 8
_LEAST_RATE, _MOST_RATE = 1_000, 384_000  # Hz
# Full scale of 32-bit integers that were stored as floats. Larger values are not audio.
_LOUDEST = 2.0**31
_MOST_SAMPLES_A_SECOND = 2 * 96_000  # of all channels, on average over the longest recording


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits on decoded audio. The size of a file in bytes is limited where it is received.

    The longest audio is counted in decoded frames, because headers may be wrong; it is shorter with more samples than
    stereo has at 96 kHz.
    """

    max_seconds: float = 14_400.0
    min_seconds: float = 0.1

    def check_decoded(self, frames: int, rate: float, channels: int) -> None:
        """Raise AudioTooLongError if ``frames`` of ``channels`` at ``rate`` are too much.

        A file of some megabytes may hold eight channels of four hours at 384 kHz, which take a quarter of an hour to
        decode. So all channels together may have the samples of the longest recording in stereo at 96 kHz.
        """
        if frames > self.max_seconds * rate:
            raise AudioTooLongError(f"the audio is longer than {self.max_seconds:g} s, the most accepted")
        if frames * channels > self.max_seconds * _MOST_SAMPLES_A_SECOND:
            most = self.max_seconds * _MOST_SAMPLES_A_SECOND / (rate * channels)
            raise AudioTooLongError(
                f"the audio is longer than {most:.0f} s, the most accepted with {channels} channels at {rate:g} Hz"
            )

    def check_shortest(self, seconds: float) -> None:
        """Raise AudioTooShortError if the whole length is too short."""
        if seconds < self.min_seconds:
            least = self.min_seconds
            raise AudioTooShortError(f"the audio lasts {seconds:.3g} s, less than {least:g} s, the least accepted")


def check_form(channels: int, rate: int) -> None:
    """Raise UnsupportedFormatError for channels, or a rate in Hz, outside the limits, before samples take memory."""
    if channels > MOST_CHANNELS:
        raise UnsupportedFormatError(f"the audio has {channels} channels; at most {MOST_CHANNELS} are accepted")
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        accepted = f"from {_LEAST_RATE} to {_MOST_RATE} Hz are accepted"
        raise UnsupportedFormatError(f"the sample rate is {rate} Hz; {accepted}")


def check_numbers(samples: "Samples") -> None:
    """Raise InvalidAudioError if a sample, of any shape, is no number or too large."""
    if samples.size and not (samples.min() >= -_LOUDEST and samples.max() <= _LOUDEST):
        raise InvalidAudioError("the audio holds samples that are not numbers, or too large")
