"""The log of a run for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.errors import TrainingError


def check_board() -> None:
    """Check that TensorBoard is there.

    Raises:
        TrainingError: if it is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401  # imports TensorBoard
    except ImportError as error:
        raise TrainingError("TensorBoard is not installed; it comes with: pip install 'steno[tensorboard]'") from error


class Board:
    """Writes the values of the log into `DIR/tensorboard`."""

    def __init__(self, folder: Path, step: int) -> None:
        """Begin, or continue after a step: values of later steps are hidden.

        Raises:
            TrainingError: if TensorBoard is not installed.
        """
        check_board()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add a line of the log."""
        step = fields["step"]
        numbers = {key: value for key, value in fields.items() if isinstance(value, int | float) and key != "step"}
        numbers |= {f"wer/{source}": rate for source, rate in fields.get("wer", {}).items()}
        for key, value in numbers.items():
            self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        """Write buffered values."""
        self._writer.close()
