"""Recordings of noise and of rooms in folders, which augmentation adds to clips."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from audio.samples import Samples
from training.clip import Clip
from training.errors import RecipeError
from training.librispeech import seconds_of
from training.survey import shown_length

# Of a room's answer, no more is used.
_ROOM_SECONDS = 10.0


class Recordings:
    """The recordings in folders and in the folders inside, in the order of their paths. Threads may share it.

    Attributes:
        survey: a line about them.
        digest: identifies them by name and length.
    """

    def __init__(self, folders: Sequence[Path], key: str) -> None:
        """Find the files whose headers have a length; ``key`` is the recipe's key that names the folders.

        Raises:
            RecipeError: if a folder has no recording, or cannot be read.
        """
        self._clips: list[Clip] = []
        others: list[Path] = []
        for folder in folders:
            try:
                files = sorted(path for path in folder.rglob("*") if path.is_file())
                found = [(path, _seconds(path)) for path in files]
            except OSError as error:
                raise RecipeError(f"{key}: {error.filename}: {error.strerror}", key) from error
            # With a start, a recording may be shorter than the shortest clip.
            clips = [
                Clip(path, str(path.relative_to(folder)), seconds, text=None, source="", speaker="", start=0.0)
                for path, seconds in found
                if seconds
            ]
            if not clips:
                raise RecipeError(f"{key}: there is no recording in {folder}", key)
            self._clips += clips
            others += [path for path, seconds in found if not seconds]
        length = shown_length(sum(clip.seconds for clip in self._clips))
        left_out = f"; left out: {len(others):,} of other kinds, such as {others[0]}" if others else ""
        self.survey = f"{key}: files of sound: {len(self._clips):,}, {length}{left_out}"
        named = "\n".join(f"{clip.name} {clip.seconds}" for clip in self._clips)
        self.digest = hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()

    def noise(self, samples: int, rate: int, random: np.random.Generator) -> Samples:
        """Return a random part of a recording, float32 [samples]; a recording that is shorter is repeated.

        Raises:
            ManifestError: if it does not decode.
        """
        clip = self._clips[int(random.integers(len(self._clips)))]
        spare = clip.seconds - samples / rate
        if spare > 0:
            clip = replace(clip, start=float(random.uniform(0.0, spare)), seconds=samples / rate)
            return np.resize(clip.samples(rate), samples)  # rounding may leave out a sample
        whole = clip.samples(rate)
        return np.resize(np.roll(whole, int(random.integers(len(whole)))), samples)

    def room(self, rate: int, random: np.random.Generator) -> Samples:
        """Return the answer of a random room to an impulse, float32 [n].

        Raises:
            ManifestError: if it does not decode.
        """
        clip = self._clips[int(random.integers(len(self._clips)))]
        return replace(clip, seconds=min(clip.seconds, _ROOM_SECONDS)).samples(rate)


def _seconds(path: Path) -> float | None:
    with path.open("rb") as file:
        return seconds_of(file)
