"""Learning from a teacher, frame by frame: from its posteriors (Hinton et al., 2015), and from its encoder's frames.

CTC posteriors are blank nearly everywhere, so a student that only predicts blank is nearly always right. Frames in
which the teacher has a label weigh more, which takes the student off that plateau at once. Targets from the encoder's
frames (compare Romero et al., 2015, and Chang et al., 2022, arXiv 2110.01900) are informative at every frame.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.posteriors import TeacherFrames


@dataclass(frozen=True, slots=True)
class FrameTargets:
    """Targets for a student's frames of a clip: probabilities of the blank and of a few labels, and encoder frames.

    Probabilities add up to 1. A label may occur more than once; its probabilities then add up.

    Attributes:
        blank: [frames], float32.
        labels: [frames, entries], int64.
        masses: their probabilities, [frames, entries], float32.
        hidden: frames of the teacher's encoder, [frames, width], float32; width 0 if they are not kept.
    """

    blank: NDArray[np.float32]
    labels: NDArray[np.int64]
    masses: NDArray[np.float32]
    hidden: NDArray[np.float32]

    @classmethod
    def unknown(cls, entries: int, width: int) -> "FrameTargets":
        """Return the targets of a clip that has none: no frames."""
        no_masses, no_hidden = np.empty((0, entries), np.float32), np.empty((0, width), np.float32)
        return cls(np.empty(0, np.float32), no_masses.astype(np.int64), no_masses, no_hidden)


def merged(frames: TeacherFrames, ratio: int) -> FrameTargets:
    """Merge every ``ratio`` frames of a teacher into one frame of a slower student.

    A merged frame is blank only if all of its frames are, so its blank's probability is the product of theirs. The
    rest goes to the labels in proportion to their summed probabilities. The encoder's frames are concatenated. The last
    frame may merge fewer; then zeros fill up its encoder frame.
    """
    count = -(-len(frames) // ratio)
    entries, width = frames["labels"].shape[1], frames["hidden"].shape[1]
    blank = np.ones((count * ratio,), dtype=np.float32)
    masses = np.zeros((count * ratio, entries), dtype=np.float32)
    labels = np.zeros((count * ratio, entries), dtype=np.int64)
    total = frames["blank"].astype(np.float32) + frames["masses"].astype(np.float32).sum(axis=1)
    blank[: len(frames)] = frames["blank"] / total
    masses[: len(frames)] = frames["masses"] / total[:, None]
    labels[: len(frames)] = frames["labels"]

    all_blank = blank.reshape(count, ratio).prod(axis=1)
    masses = masses.reshape(count, ratio * entries)
    summed = masses.sum(axis=1)
    silent = summed == 0
    all_blank[silent] = 1.0
    share = (1 - all_blank) / np.where(silent, 1.0, summed)
    hidden = np.zeros((count * ratio, width), dtype=np.float32)
    hidden[: len(frames)] = frames["hidden"]
    return FrameTargets(
        blank=all_blank,
        labels=labels.reshape(count, ratio * entries),
        masses=masses * share[:, None],
        hidden=hidden.reshape(count, ratio * width),
    )


def greedy_spans(frames: TeacherFrames) -> list[tuple[int, int, int]]:
    """Return a teacher's own transcript: the best label of every frame, repeats merged, blanks dropped.

    Returns:
        Each label with its first and its last frame.
    """
    best = np.where(frames["blank"] >= frames["masses"][:, 0], -1, frames["labels"][:, 0].astype(np.int64))
    starts = np.flatnonzero(np.diff(best, prepend=-2))
    ends = np.append(starts, len(best))[1:] - 1
    spans = zip(best[starts].tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(label, first, last) for label, first, last in spans if label >= 0]


def greedy_labels(frames: TeacherFrames) -> list[int]:
    """Return the labels of a teacher's own transcript."""
    return [label for label, _, _ in greedy_spans(frames)]


def distillation_loss(
    log_probabilities: Tensor, blank: Tensor, labels: Tensor, masses: Tensor, valid: Tensor, label_emphasis: float
) -> Tensor:
    """Return the weighted mean cross-entropy between a teacher's posteriors and a student's.

    Args:
        log_probabilities: the student's, [batch, frames, labels + 1], the blank last.
        blank: the teacher's probability of the blank, [batch, frames].
        labels: its most probable labels, [batch, frames, entries], int64.
        masses: their probabilities, [batch, frames, entries].
        valid: which frames are real, bool [batch, frames].
        label_emphasis: a frame weighs 1 + this x the probability that it is not blank.
    """
    of_labels = (masses * log_probabilities.gather(2, labels)).sum(dim=2)
    cross_entropy = -(of_labels + blank * log_probabilities[:, :, -1])
    weights = (1 + label_emphasis * (1 - blank)) * valid
    return torch.sum(cross_entropy * weights) / weights.sum().clamp(min=1)


def hidden_loss(guessed: Tensor, hidden: Tensor, valid: Tensor) -> Tensor:
    """Return the squared distance to the frames of a teacher's encoder, relative to their squared norm.

    Args:
        guessed: the student's prediction, [batch, frames, width].
        hidden: the teacher's, [batch, frames, width].
        valid: which frames are real, bool [batch, frames].
    """
    real = valid[:, :, None]
    distance = torch.sum((guessed - hidden).square() * real)
    return distance / torch.sum(hidden.square() * real).clamp(min=1)
