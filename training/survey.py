"""A survey of the training data before the first step: what is used and what is left out."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.config import ModelConfig
from training.clip import Clip
from training.errors import ManifestError
from training.recipe import TrainingData
from training.takes import Take
from training.transcripts import Transcripts

_SHOWN_CHARACTERS = 12


@dataclass(slots=True)
class _Group:
    """Clips or takes with something in common, counted."""

    unit: str = "clip"
    count: int = 0
    seconds: float = 0.0
    first: str = ""

    def add(self, one: Clip | Take) -> None:
        self.first = self.first or str(one.clip if isinstance(one, Take) else one)
        self.count += 1
        self.seconds += one.seconds

    def __str__(self) -> str:
        return f"{self.count:,} {self.unit}{'s' * (self.count != 1)} ({_length(self.seconds)})"


class Survey:
    """Counts clips, their lengths, and problems of some of them.

    Files are not decoded; only their existence is checked.

    Attributes:
        takes: number of takes to train on.
    """

    def __init__(self, data: TrainingData, transcripts: Transcripts, config: ModelConfig, *, reads_texts: bool) -> None:
        """Begin a survey.

        Args:
            data: the recipe's training data.
            transcripts: makes labels of transcripts.
            config: the student's configuration.
            reads_texts: whether the run learns from transcripts; with a teacher, nothing is said of them.
        """
        self.takes = 0
        self._seconds = 0.0
        self._data = data
        self._vocabulary = transcripts.vocabulary
        self._config = config
        self._reads_texts = reads_texts
        self._all, self._missing, self._short, self._long = (_Group() for _ in range(4))
        self._empty, self._unknown, self._crowded, self._endless = (_Group("take") for _ in range(4))
        self._spelled = _Group("take")
        self._lacking: set[str] = set()
        self._seen: tuple[Path, bool] | None = None

    def note_clip(self, clip: Clip) -> None:
        """Count a clip of a manifest, whether or not any of its takes is used."""
        self._all.add(clip)
        if not self._is_there(clip.audio):
            self._missing.add(clip)
        if clip.seconds < self._data.min_seconds * min(self._data.speeds):
            self._short.add(clip)
        if clip.seconds > self._data.max_seconds * max(self._data.speeds):
            self._long.add(clip)

    def note_take(self, take: Take, tokens: Sequence[int], sequence: Sequence[int]) -> None:
        """Count a take to train on.

        Args:
            take: the take.
            tokens: labels of its transcript.
            sequence: the same with its prompt, for an attention decoder.
        """
        self.takes += 1
        self._seconds += take.seconds
        text, config = take.clip.text, self._config
        if text is None or not self._reads_texts:
            return
        if not text.strip():
            self._empty.add(take)
        if self._vocabulary.spelled(text, take.clip.prompt) != text:
            self._spelled.add(take)
        if lacking := self._vocabulary.lacking(text, take.clip.prompt):
            self._unknown.add(take)
            self._lacking |= lacking
        repeats = sum(one == other for one, other in itertools.pairwise(tokens))
        features = int(take.seconds * config.features.sample_rate) // config.features.hop
        frames = -(-features // config.encoder.subsampling_factor)
        if config.ctc and len(tokens) + repeats > frames:
            self._crowded.add(take)
        if config.attention and len(sequence) > config.attention.positions:
            self._endless.add(take)

    def lines(self) -> list[str]:
        """Return lines about the number and length of clips, and problems of some of them.

        Raises:
            ManifestError: if none of the files exists, or too many transcripts have characters without a label.
        """
        if self._missing.count == self._all.count:
            raise ManifestError(f"{self._all.first}: No such file or directory (nor any other clip's)")
        if self._unknown.count > self._data.unknown_share * self.takes:
            raise ManifestError(
                f"{self._unknown} of {self.takes:,} with letters or digits that the vocabulary lacks "
                f"({self._examples()}), such as {self._unknown.first}: the model would learn its unknown piece; "
                "write them with its letters, or raise data.unknown_share"
            )
        return [
            f"{self._all}; trained on: {self.takes:,} takes, {_length(self._seconds)}",
            *_line(
                "left out",
                (f"under {self._data.min_seconds:g} s", self._short),
                (f"over {self._data.max_seconds:g} s", self._long),
            ),
            *_line("skipped", (f"no file, such as {self._missing.first}", self._missing)),
            *_line(
                "transcripts",
                ("empty", self._empty),
                ("in another case or with marks that the vocabulary lacks, written as it writes", self._spelled),
                (f"with letters or digits that the vocabulary lacks ({self._examples()})", self._unknown),
                ("longer than their clip's frames, which CTC leaves out", self._crowded),
                ("longer than the decoder's positions, which are skipped", self._endless),
            ),
        ]

    def _examples(self) -> str:
        """Return some of the characters that the vocabulary lacks."""
        return " ".join(sorted(self._lacking)[:_SHOWN_CHARACTERS])

    def _is_there(self, file: Path) -> bool:
        # Clips of a tar, or of a long recording, follow each other.
        if self._seen is None or self._seen[0] != file:
            try:
                self._seen = (file, file.is_file())
            except OSError:  # such as a name that is too long; loading says it, and skips the clip
                self._seen = (file, False)
        return self._seen[1]


def _line(what: str, *groups: tuple[str, _Group]) -> Iterable[str]:
    """Return a line about the groups that are not empty, if any."""
    amounts = [f"{group} {name}" for name, group in groups if group.count]
    return [f"{what}: " + ", ".join(amounts)] if amounts else []


def _length(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
