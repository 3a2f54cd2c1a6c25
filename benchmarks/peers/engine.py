"""What is compared: an engine takes a batch of waveforms and says token ids."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Tokens = list[list[int]]


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to transcribe.

    Attributes:
        name: whose it is, and in which dtype.
        head: what decodes, "ctc" or "tdt".
        transcribe: takes waveforms [batch, samples] and their lengths [batch], gives token ids of each.
        search: only the search, from encoder frames that were computed before, or None where it cannot be had apart.
    """

    name: str
    head: str
    transcribe: Callable[[Tensor, Tensor], Tokens]
    search: Callable[[], object] | None = None

    @property
    def library(self) -> str:
        """Whose it is, as Python imports it."""
        return self.name.split()[0].replace("-", "_")
