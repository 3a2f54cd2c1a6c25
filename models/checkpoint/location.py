"""Finding the file or folder of a checkpoint from the name that a user gives."""

from pathlib import Path

from models import bundled
from models.checkpoint.hub_name import hub_name
from models.checkpoint.layout import nemo_archive
from models.download import OnDownload


def checkpoint_path(model: str | Path, on_download: OnDownload | None = None) -> Path:
    """Return the file or folder of a model; a model on the hub is downloaded first.

    Args:
        model: ``"bundled"``, a path, or a name on the hub: ``owner/name`` or ``owner/name@revision``. An existing path
            has priority.
        on_download: gets the progress; None draws a progress bar if standard error is a terminal.

    Raises:
        CheckpointError: if it cannot be downloaded, or a folder has several checkpoints, none of its name.
    """
    if model == bundled.NAME:
        return bundled.CHECKPOINT
    path, title = Path(model), Path(model).absolute().name
    if isinstance(model, str) and (name := hub_name(model)):
        from models.checkpoint import hub

        path, title = hub.download(name.repository, name.revision, on_download), name.repository
    if path.is_dir() and (archive := nemo_archive((entry.name for entry in path.iterdir()), title)):
        return path / archive
    return path


def model_id(model: str) -> str:
    """Return the id of a model for clients: its name on the hub, or that of its file or folder."""
    if name := hub_name(model):
        return name.repository
    path = bundled.CHECKPOINT if model == bundled.NAME else Path(model)
    return path.name.removesuffix(".nemo")
