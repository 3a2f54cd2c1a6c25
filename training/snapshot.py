"""The state of a run on disk, from which it goes on as if it had never stopped.

Augmentation and dropout are drawn from the seed, the epoch and the step, so no state of a random generator has to be
kept: the weights, the optimizer, the average and two counters are all there is.
"""

import json
import os
import pickle
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from training.errors import ResumeError, TrainingError
from training.sampler import Position


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run between two steps.

    Attributes:
        identity: what makes it this run and no other: recipe and clips, as JSON holds them.
        step: steps done.
        position: the batch that comes next.
        audio_seconds: audio trained on.
        network: state of the network.
        average: state of the average of its weights.
        optimizer: state of the optimizer.
        loss_scale: state of the factor of the loss.
    """

    identity: dict[str, Any]
    step: int
    position: Position
    audio_seconds: float
    network: dict[str, Tensor]
    average: dict[str, Tensor]
    optimizer: dict[str, Any]
    loss_scale: dict[str, float]


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace what is at ``path`` in one stroke: whoever is killed while writing leaves the old state behind.

    Raises:
        TrainingError: if it cannot be written; the old state is still there.
    """
    content = {
        "identity": json.dumps(snapshot.identity),
        "step": snapshot.step,
        "epoch": snapshot.position.epoch,
        "batch": snapshot.position.batch,
        "audio_seconds": snapshot.audio_seconds,
        "network": snapshot.network,
        "average": snapshot.average,
        "optimizer": snapshot.optimizer,
        "loss_scale": snapshot.loss_scale,
    }
    fresh = path.with_suffix(".new")
    reason: OSError | None = None
    try:
        with fresh.open("wb") as file:
            noting = _NotingErrors(file)
            try:
                torch.save(content, noting)  # type: ignore[arg-type]  # it writes and flushes, and no more
            except RuntimeError as error:
                # Of a full disk, torch says where in its source it noticed.
                raise noting.error or error from error
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        reason = error
    if reason:
        fresh.unlink(missing_ok=True)
        raise TrainingError(f"{path} cannot be written: {reason.strerror}; the state before it is kept") from reason


class _NotingErrors:
    """A file that remembers why it could not be written."""

    def __init__(self, file: BufferedWriter) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        """Write, and note what went wrong."""
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Pass on what is buffered."""
        self._file.flush()


def read_snapshot(path: Path, device: torch.device) -> Snapshot:
    """Read the state at ``path``, its tensors onto ``device``.

    Raises:
        ResumeError: if there is none, or it is damaged.
    """
    try:
        content = torch.load(path, map_location=device, weights_only=True)
        return Snapshot(
            identity=json.loads(content["identity"]),
            step=content["step"],
            position=Position(content["epoch"], content["batch"]),
            audio_seconds=content["audio_seconds"],
            network=content["network"],
            average=content["average"],
            optimizer=content["optimizer"],
            loss_scale=content["loss_scale"],
        )
    except FileNotFoundError as error:
        raise ResumeError(f"there is no run to resume at {path.parent}") from error
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError, ValueError, KeyError, TypeError) as error:
        raise ResumeError(f"{path} is damaged; move it away to begin anew") from error


def check_identity(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to go on with another run than the one that was begun.

    Raises:
        ResumeError: naming what differs.
    """
    wanted = cast("dict[str, Any]", json.loads(json.dumps(wanted)))
    different = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    if different:
        raise ResumeError(f"this run was begun with other values of {', '.join(different)}")
