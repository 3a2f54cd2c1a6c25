"""The interface of engines that are compared: from a batch of waveforms to token ids."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Tokens = list[list[int]]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine.

    Attributes:
        name: its library and dtype.
        head: its decoder, "ctc", "rnnt" or "tdt".
        transcribe: takes waveforms [batch, samples] and their lengths [batch], and returns token ids of each.
        search: the search alone, from precomputed encoder frames, or None if it cannot be run alone.
    """

    name: str
    head: str
    transcribe: Callable[[Tensor, Tensor], Tokens]
    search: Callable[[], object] | None = None

    @property
    def library(self) -> str:
        """The library's name in Python."""
        return self.name.split()[0].replace("-", "_")
