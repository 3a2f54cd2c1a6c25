"""A teacher's posteriors of takes, computed once and stored on disk."""

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from audio.samples import Samples
from models.text.tokenizers import WORD_START
from training.ahead import ahead
from training.clip import AudioLocation, Clip
from training.distillation import greedy_labels
from training.errors import ManifestError, RecipeError
from training.posteriors import PosteriorStore, TeacherFrames
from training.recipe import Precision, Teacher
from training.student import FRONT_END
from training.takes import Take
from training.teacher import CHECKPOINT_KEY, TeacherModel

# Audio and padding of a teacher's batch, fixed because batching changes the last digits of posteriors.
_BATCH_SECONDS = 120.0


class TeacherPosteriors:
    """A teacher's posteriors of takes.

    Attributes:
        folder: the folder of their files.
        ratio: frames of the teacher in one frame of the student.
        entries: labels that are kept of them, for one frame of the student.
        frame_samples: samples of a frame of the teacher.
        pieces: the teacher's labels.
        width: values of its encoder's frames for one frame of the student, or 0.
        unreadable: recordings that could not be read.
    """

    def __init__(
        self,
        store: PosteriorStore,
        names: dict[AudioLocation, str],
        takes: Sequence[Take],
        model: TeacherModel,
        stride: int,
        unreadable: Collection[AudioLocation] = (),
    ) -> None:
        self.folder = store.folder
        self.unreadable = frozenset(unreadable)
        self.ratio = stride // model.stride
        self.entries = self.ratio * model.labels
        self.frame_samples = model.stride * FRONT_END.hop
        self.pieces = model.tokenizer.pieces
        self.width = self.ratio * model.width
        self._store = store
        self._names = names
        self._takes = frozenset(takes)
        # Of the takes of a clip, the one at its own speed or the nearest, because a teacher hears that best.
        nearest_last = sorted(takes, key=lambda take: abs(take.speed - 1), reverse=True)
        self._take_of_clip = {take.clip.location: take for take in nearest_last}
        self._tokenizer = model.tokenizer
        self._stride = stride

    def of(self, take: Take) -> TeacherFrames | None:
        """Return the teacher's frames of a take, or None."""
        return self._store.read(_entry(self._names, take)) if take in self._takes else None

    def transcript(self, clip: Clip) -> str | None:
        """Return the teacher's transcript of a clip, or None if no take of the clip has posteriors."""
        take = self._take_of_clip.get(clip.location)
        if take is None:
            return None
        return self._tokenizer.join(greedy_labels(self._store.read(_entry(self._names, take))))

    def frames_of(self, features: int) -> int:
        """Return the student's number of frames for a number of features."""
        return -(-features // self._stride)


def labelled(
    takes: Sequence[Take],
    teacher: Teacher,
    student_stride: int,
    device: torch.device,
    precision: Precision,
    *,
    finds_words: bool = False,
) -> TeacherPosteriors:
    """Return a teacher's posteriors of the takes of its sources; missing ones are computed, with a progress bar.

    Args:
        takes: the takes.
        teacher: the model, and the folder of its posteriors.
        student_stride: features of a frame of the student, a multiple of the teacher's.
        device: the teacher's device.
        precision: precision of its matrix products.
        finds_words: whether its labels must say where words begin, as splicing needs.

    Raises:
        RecipeError: if the teacher cannot be read or used.
        TrainingError: if the store is damaged, or written by another run.
    """
    model = TeacherModel(teacher.checkpoint, teacher.labels, device, precision, hidden=teacher.hidden)
    if student_stride % model.stride:
        raise RecipeError(
            f"a frame of the student has {student_stride} features, no multiple of the teacher's {model.stride}",
            "teacher",
        )
    if finds_words and not any(piece.startswith(WORD_START) for piece in model.tokenizer.pieces):
        raise RecipeError(
            "augmentation.splice cuts where words begin, and the teacher's labels do not say where",
            "augmentation.splice",
        )
    folder = f"{_digest_of_checkpoint(teacher.checkpoint)[:16]}-{teacher.labels}-{precision}"
    store = PosteriorStore(teacher.cache / (folder + "-hidden" * teacher.hidden), teacher.labels, model.width)
    takes = [take for take in takes if _is_labelled(take, teacher)]
    names, unreadable = {}, set[AudioLocation]()
    of_recordings: dict[AudioLocation, str] = {}
    for clip in {take.clip.location: take.clip for take in takes}.values():
        try:
            names[clip.location] = _digest_of_clip(clip, of_recordings)
        except ManifestError:
            unreadable.add(clip.location)
    missing = [take for take in takes if take.clip.location in names and _entry(names, take) not in store]
    if missing:
        unreadable |= _label(missing, model, store, names)
    readable = [take for take in takes if take.clip.location not in unreadable]
    return TeacherPosteriors(store, names, readable, model, student_stride, unreadable)


def _is_labelled(take: Take, teacher: Teacher) -> bool:
    return teacher.sources is None or take.clip.source in teacher.sources


def _label(
    takes: Sequence[Take], model: TeacherModel, store: PosteriorStore, names: dict[AudioLocation, str]
) -> set[AudioLocation]:
    """Compute and store the posteriors of takes; return the recordings that could not be read."""
    unreadable: set[AudioLocation] = set()
    decoded = ahead(lambda batch: [_samples(take) for take in batch], _batches(takes))
    bar = tqdm(total=round(sum(take.seconds for take in takes)), desc="labelling", unit="s", disable=None)
    with bar, store.writing() as writer:
        for batch, clips in zip(_batches(takes), decoded, strict=True):
            # The same file may be in two manifests, or another run may have been faster.
            fresh = {}
            for take, samples in zip(batch, clips, strict=True):
                if samples is None:
                    unreadable.add(take.clip.location)
                elif _entry(names, take) not in store:
                    fresh[_entry(names, take)] = samples
            if fresh:
                writer.add(list(fresh), model.posteriors(list(fresh.values())))
            bar.update(round(sum(take.seconds for take in batch)))
    return unreadable


def _samples(take: Take) -> Samples | None:
    """Return a take's samples, or None if it cannot be read; the training loop reports why."""
    try:
        return take.samples(FRONT_END.sample_rate)
    except ManifestError:
        return None


def _batches(takes: Sequence[Take]) -> Iterator[list[Take]]:
    """Yield takes of similar length in batches, the longest first."""
    batch: list[Take] = []
    for take in sorted(takes, key=lambda take: take.seconds, reverse=True):
        if batch and (len(batch) + 1) * batch[0].seconds > _BATCH_SECONDS:
            yield batch
            batch = []
        batch.append(take)
    if batch:
        yield batch


def _entry(names: dict[AudioLocation, str], take: Take) -> str:
    return f"{names[take.clip.location]}@{take.speed:g}"


def _digest_of_checkpoint(path: Path) -> str:
    """Return a digest of a file, or of all files of a folder."""
    digest = hashlib.sha256()
    try:
        for one in sorted(path.iterdir()) if path.is_dir() else [path]:
            if not one.is_dir():
                with one.open("rb") as file:
                    hashlib.file_digest(file, lambda: digest)
                digest.update(str(one.stat().st_size).encode())
    except OSError as error:
        raise RecipeError(f"{error.filename or path}: {error.strerror or error}", CHECKPOINT_KEY) from error
    return digest.hexdigest()[:32]


def _digest_of_clip(clip: Clip, of_recordings: dict[AudioLocation, str]) -> str:
    """Return what identifies a clip's audio; ``of_recordings`` keeps the digests of recordings that have several."""
    recording = replace(clip.location, start=None, seconds=None)
    digest = of_recordings.get(recording)
    if digest is None:
        try:
            with clip.open() as file:
                content = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]  # BinaryIO lacks readinto
                # With the size, for the sake of labels that exist. What is in memory is digested, but not read.
                content.update(str(file.seek(0, os.SEEK_END)).encode())
        except OSError as error:
            raise ManifestError(f"{clip}: {error.strerror or error}") from error
        digest = content.hexdigest()[:32]
    if clip.start is None:
        return digest
    of_recordings[recording] = digest
    return hashlib.sha256(f"{digest} {clip.start} {clip.seconds}".encode()).hexdigest()[:32]
