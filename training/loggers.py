"""Programs that show the log of a run: TensorBoard, Weights & Biases, MLflow. Each is imported when it is asked for."""

import importlib
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from training.errors import TrainingError
from training.recipe import Loggers, Mlflow, Wandb

# What each is called, and the extra that it comes with, by the module that is imported.
_PROGRAMS = {
    "torch.utils.tensorboard": ("TensorBoard", "tensorboard"),
    "wandb": ("Weights & Biases", "wandb"),
    "mlflow": ("MLflow", "mlflow"),
}
# What MLflow does not take in names.
_NOT_IN_NAMES = re.compile(r"[^\w\-./ ]")


class Logger(Protocol):
    """Shows the lines of a log."""

    def add(self, fields: Mapping[str, Any]) -> None:
        """Show a line of the log, which has a step."""

    def close(self) -> None:
        """Write what is held back."""


def open_loggers(config: Loggers, folder: Path, step: int, *, tensorboard: bool) -> list[Logger]:
    """Return the loggers of the run in ``folder``, which begin, or continue after a step.

    Raises:
        TrainingError: if one is not installed, or cannot begin.
    """
    found: list[Logger] = [TensorBoard(folder, step)] if tensorboard else []
    found += [WandbLogger(config.wandb, folder, step)] if config.wandb else []
    found += [MlflowLogger(config.mlflow, folder, step)] if config.mlflow else []
    return found


def check_loggers(config: Loggers, *, tensorboard: bool) -> None:
    """Check that the loggers are installed.

    Raises:
        TrainingError: if one is not; the message says how it is.
    """
    wanted = (tensorboard, config.wandb, config.mlflow)
    for module, is_wanted in zip(_PROGRAMS, wanted, strict=True):
        if is_wanted:
            _imported(module)


def _imported(module: str) -> Any:  # noqa: ANN401  # a module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name, extra = _PROGRAMS[module]
        raise TrainingError(f"{name} is not installed; it comes with: pip install 'steno[{extra}]'") from error


def numbers_of(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of the log but its step; word error rates are ``wer/`` and their source."""
    numbers = {key: value for key, value in fields.items() if isinstance(value, int | float) and key != "step"}
    return numbers | {f"wer/{source}": rate for source, rate in fields.get("wer", {}).items()}


class TensorBoard:
    """Writes into `DIR/tensorboard`."""

    def __init__(self, folder: Path, step: int) -> None:
        """Begin, or continue after a step: values of later steps are hidden."""
        self._writer = _imported("torch.utils.tensorboard").SummaryWriter(
            str(folder / "tensorboard"), purge_step=step + 1
        )

    def add(self, fields: Mapping[str, Any]) -> None:
        """Write the numbers of a line."""
        for key, value in numbers_of(fields).items():
            self._writer.add_scalar(key, value, fields["step"])

    def close(self) -> None:
        """Write buffered values."""
        self._writer.close()


class WandbLogger:
    """Sends the numbers to Weights & Biases; a run that is resumed continues there, too."""

    def __init__(self, config: Wandb, folder: Path, step: int) -> None:
        """Begin, or continue the run in `DIR/wandb.id`."""
        wandb = _imported("wandb")
        name = _known_run(folder / "wandb.id", step) or _keep(folder / "wandb.id", secrets.token_hex(4))
        try:
            self._run = wandb.init(project=config.project, name=folder.name, id=name, resume="allow", dir=str(folder))
        except wandb.errors.Error as error:
            raise TrainingError(f"Weights & Biases cannot begin: {error}") from error

    def add(self, fields: Mapping[str, Any]) -> None:
        """Send the numbers of a line."""
        self._run.log(numbers_of(fields), step=fields["step"])

    def close(self) -> None:
        """Send what is held back."""
        self._run.finish()


class MlflowLogger:
    """Sends the numbers to MLflow; a run that is resumed continues there, too."""

    def __init__(self, config: Mlflow, folder: Path, step: int) -> None:
        """Begin, or continue the run in `DIR/mlflow.id`."""
        mlflow = _imported("mlflow")
        self._error, self._metric = mlflow.exceptions.MlflowException, mlflow.entities.Metric
        try:
            self._client = mlflow.MlflowClient()
            self._run = _known_run(folder / "mlflow.id", step)
            if self._run is None:
                known = self._client.get_experiment_by_name(config.experiment)
                experiment = known.experiment_id if known else self._client.create_experiment(config.experiment)
                run = self._client.create_run(experiment, run_name=folder.name)
                self._run = _keep(folder / "mlflow.id", run.info.run_id)
        except self._error as error:
            raise TrainingError(f"MLflow cannot begin: {error}") from error

    def add(self, fields: Mapping[str, Any]) -> None:
        """Send the numbers of a line."""
        now = int(1000 * time.time())
        metrics = [
            self._metric(_NOT_IN_NAMES.sub("_", key), float(value), now, fields["step"])
            for key, value in numbers_of(fields).items()
        ]
        with suppress(self._error):  # a server that is gone must not end a run, whose own log has the line
            self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        """Say that the run has ended."""
        with suppress(self._error):
            self._client.set_terminated(self._run)


def _known_run(path: Path, step: int) -> str | None:
    """Return the name that a run has elsewhere; None if it is new or begins anew."""
    try:
        return path.read_text() if step else None
    except OSError:
        return None


def _keep(path: Path, name: str) -> str:
    try:
        path.write_text(name)
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror}") from error
    return name
