"""Transcribe many files: threads decode ahead of the model, in batches and in bounded memory."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audio.errors import AudioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from audio.decode import Audio
    from audio.limits import AudioLimits
    from audio.pool import DecodePool
    from models import Hypothesis, Model

_THREADS = 4
_FILES_AHEAD = 2 * _THREADS
# The model sorts what it is given by length, so a few batches at a time leave little padding.
_BATCHES_AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class Transcribed:
    """A file that was transcribed: its length in seconds and its transcript."""

    seconds: float
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that was not, and why in one line."""

    error: str


def transcribe_files(
    model: Model, paths: Iterable[Path], *, decoder: str | None, batch_seconds: float, limits: AudioLimits
) -> Iterator[Transcribed | Failed]:
    """Yield what became of each file, in the order given.

    Args:
        model: the model.
        paths: the files; only so many are held decoded as a few batches take.
        decoder: one of ``model.decoders``, or None for the first.
        batch_seconds: audio and padding in one batch.
        limits: what audio is accepted.
    """
    decoded = _decoded(paths, model.sample_rate, limits)
    for chunk in _chunks(decoded, _BATCHES_AT_A_TIME * batch_seconds):
        samples = [audio.samples for audio in chunk if not isinstance(audio, Failed)]
        hypotheses = iter(model.transcribe(samples, decoder=decoder, batch_seconds=batch_seconds))
        for audio in chunk:
            yield audio if isinstance(audio, Failed) else Transcribed(audio.seconds, next(hypotheses))


def _decoded(paths: Iterable[Path], rate: int, limits: AudioLimits) -> Iterator[Audio | Failed]:
    """Yield decoded files in order, while threads decode the next few."""
    from audio.pool import DecodePool

    pending: deque[Future[Audio | Failed]] = deque()
    threads, decoders = ThreadPoolExecutor(_THREADS), DecodePool()
    try:
        for path in paths:
            pending.append(threads.submit(_decode, decoders, path, rate, limits))
            if len(pending) > _FILES_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        decoders.close()
        threads.shutdown()


def _decode(decoders: DecodePool, path: Path, rate: int, limits: AudioLimits) -> Audio | Failed:
    try:
        with path.open("rb") as file:
            return decoders.decode(file, rate=rate, limits=limits)
    except AudioError as error:
        return Failed(str(error))
    except OSError as error:
        return Failed(error.strerror or str(error))


def _chunks(decoded: Iterable[Audio | Failed], seconds: float) -> Iterator[list[Audio | Failed]]:
    """Yield runs of files that hold ``seconds`` of audio or a little more."""
    chunk: list[Audio | Failed] = []
    held = 0.0
    for audio in decoded:
        chunk.append(audio)
        held += 0 if isinstance(audio, Failed) else audio.seconds
        if held >= seconds:
            yield chunk
            chunk, held = [], 0.0
    if chunk:
        yield chunk
