"""A survey of the training data before the first step: what is used and what is left out."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.config import ModelConfig
from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.clip import Clip
from training.errors import ManifestError, RecipeError
from training.recipe import TrainingData
from training.takes import Take

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
        return f"{self.amount} ({shown_length(self.seconds)})"

    @property
    def amount(self) -> str:
        return f"{self.count:,} {self.unit}{'s' * (self.count != 1)}"


class Survey:
    """Counts clips, their lengths, and problems of some of them.

    Files are not decoded; only their existence is checked.
    """

    def __init__(
        self, data: TrainingData, vocabulary: TrainingVocabulary, config: ModelConfig, *, reads_texts: bool
    ) -> None:
        """Begin a survey; with ``reads_texts``, the run learns from transcripts, and else nothing is said of them."""
        self._takes = 0  # that are not left out
        self._learned = _Group("take")
        self._data = data
        self._vocabulary = vocabulary
        self._config = config
        self._reads_texts = reads_texts
        self._all, self._missing, self._untimed, self._short, self._long = (_Group() for _ in range(5))
        self._empty, self._unknown, self._crowded, self._endless, self._spelled, self._dense = (
            _Group("take") for _ in range(6)
        )
        self._lacking: set[str] = set()
        self._seen: tuple[Path, bool] | None = None

    def note_clip(self, clip: Clip) -> None:
        """Count a clip of a manifest, whether or not any of its takes is used."""
        self._all.add(clip)
        if not clip.seconds:
            self._untimed.add(clip)
            return
        if not self._is_there(clip.audio):
            self._missing.add(clip)
        if clip.seconds < self._data.min_seconds * min(self._data.speeds):
            self._short.add(clip)
        if clip.seconds > self._data.max_seconds * max(self._data.speeds):
            self._long.add(clip)

    def is_dense(self, take: Take, labels: int) -> bool:
        """Return whether a take has more labels in a second than the recipe allows, and count it if so.

        A batch with such a take needs far more memory. Labels of prompts do not count, because their number does not
        depend on the length.
        """
        most = self._data.max_labels_per_second
        is_dense = most is not None and labels > most * take.seconds
        if is_dense:
            self._dense.add(take)
        return is_dense

    def note_take(self, take: Take, tokens: Sequence[int], sequence: Sequence[int]) -> None:
        """Count a take that is not left out, and whether it is learned from.

        ``sequence`` has the labels of its transcript with its prompt, for an attention decoder.
        """
        self._takes += 1
        is_learned = self._is_there(take.clip.audio)
        if take.clip.text is not None and self._reads_texts:
            is_learned &= self._note_text(take, take.clip.text, tokens, sequence)
        if is_learned:
            self._learned.add(take)

    def _note_text(self, take: Take, text: str, tokens: Sequence[int], sequence: Sequence[int]) -> bool:
        """Count what is wrong with a transcript, and return whether any head learns from it."""
        config = self._config
        if not text.strip():
            self._empty.add(take)
        vocabulary = self._vocabulary
        if isinstance(vocabulary, AttentionVocabulary):
            vocabulary, _ = vocabulary.part(take.clip.prompt)
        spelled, lacking = vocabulary.spelled(text)
        if spelled != text:
            self._spelled.add(take)
        if lacking:
            self._unknown.add(take)
            self._lacking |= lacking
        repeats = sum(one == other for one, other in itertools.pairwise(tokens))
        features = int(take.seconds * config.features.sample_rate) // config.features.hop
        frames = -(-features // config.encoder.subsampling_factor)
        is_crowded = config.ctc and len(tokens) + repeats > frames
        is_endless = config.attention is not None and len(sequence) > config.attention.positions
        if is_crowded:
            self._crowded.add(take)
        if is_endless:
            self._endless.add(take)
        return not is_endless and not (is_crowded and config.transducer is None)

    def lines(self) -> list[str]:
        """Return lines about the number and length of clips, and problems of some of them.

        Raises:
            RecipeError: if every clip is left out.
            ManifestError: if none of the files exists, or too many transcripts have characters without a label.
        """
        data = self._data
        no_length = f"no duration above 0, such as {self._untimed.first}"
        too_dense = f"with over {data.max_labels_per_second or 0:g} labels a second, such as {self._dense.first}"
        if not (self._takes or self._dense.count):
            untimed = f": {self._untimed} {no_length}" if self._untimed.count else ""
            raise RecipeError(f"no clip lasts from {data.min_seconds:g} to {data.max_seconds:g} s{untimed}", "data")
        if not self._takes:
            raise RecipeError(f"no clip is left: {self._dense} {too_dense}", "data.max_labels_per_second")
        if self._missing.count + self._untimed.count == self._all.count:
            raise ManifestError(f"{self._missing.first}: No such file or directory (nor any other clip's)")
        if self._unknown.count > data.unknown_share * self._takes:
            raise ManifestError(
                f"{self._unknown} of {self._takes:,} with letters or digits that the vocabulary lacks "
                f"({self._examples()}), such as {self._unknown.first}: the model would learn its unknown piece; "
                "write them with its letters, or raise data.unknown_share"
            )
        return [
            f"{self._all}; trained on: {self._learned.amount}, {shown_length(self._learned.seconds)}",
            *_line(
                "left out",
                (f"under data.min_seconds, {data.min_seconds:g} s", self._short),
                (f"over data.max_seconds, {data.max_seconds:g} s", self._long),
                (too_dense, self._dense),
            ),
            *_line(
                "skipped",
                (no_length, self._untimed),
                (f"no file, such as {self._missing.first}", self._missing),
            ),
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


def shown_length(seconds: float) -> str:
    """Return a number of seconds as people read it."""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
