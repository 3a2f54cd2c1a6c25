"""A cache of decoded clips, which a run uses many times."""

import os
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from audio.samples import Samples
from models.device.resources import memory_bytes
from training.student import FRONT_END
from training.takes import Take

Samples16 = NDArray[np.int16]

_FULL_SCALE = 2**15
# Share of the memory that a run may use. 8 GiB hold 74 hours, at two bytes a sample.
_MEMORY_SHARE = 1 / 3


class DecodedTakes:
    """A cache of takes with samples of 16 bits, as in most recordings. Threads may share it."""

    def __init__(self, max_bytes: int | None = None) -> None:
        """Limit the cache to ``max_bytes``; None is a third of the memory, for all processes together."""
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun
        self._room = int(memory_bytes() * _MEMORY_SHARE) // processes if max_bytes is None else max_bytes
        self._held: dict[Take, Samples16] = {}
        self._lock = Lock()

    def samples(self, take: Take) -> Samples:
        """Return a take at the front end's rate, always rounded to 16 bits.

        Raises:
            ManifestError: if it cannot be decoded.
        """
        held = self._held.get(take)
        if held is None:
            scaled = np.rint(take.samples(FRONT_END.sample_rate) * _FULL_SCALE)
            held = scaled.clip(-_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)
            with self._lock:
                # Another thread may hold the take by now.
                if take not in self._held and held.nbytes <= self._room:
                    self._room -= held.nbytes
                    self._held[take] = held
        return held.astype(np.float32) / np.float32(_FULL_SCALE)
