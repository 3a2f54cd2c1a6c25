"""What audio is accepted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Bounds on the audio itself; the size of a file in bytes is for its receiver to bound.

    Attributes:
        max_seconds: longest audio, counted in decoded frames because headers lie.
        min_seconds: shortest audio.
        max_channels: most channels.
        min_rate: lowest sample rate in Hz.
        max_rate: highest sample rate in Hz.
    """

    max_seconds: float = 120.0
    min_seconds: float = 0.1
    max_channels: int = 8
    min_rate: int = 1_000
    max_rate: int = 384_000
