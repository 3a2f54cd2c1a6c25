"""From what a user calls a model to the file or the folder that holds its checkpoint."""

from pathlib import Path

from models import bundled
from models.checkpoint.hub_name import OnDownload, hub_name
from models.checkpoint.layout import nemo_archive


def checkpoint_path(model: str | Path, on_download: OnDownload | None = None) -> Path:
    """Return the file or the folder that a model's name stands for; a model on the hub is downloaded first.

    Args:
        model: ``"bundled"``, a path, or a name on the hub: ``owner/name`` or ``owner/name@revision``. A path that
            exists comes first.
        on_download: told how a download goes; None draws a bar where standard error is a terminal.

    Raises:
        CheckpointError: if the hub does not give it.
    """
    if model == bundled.NAME:
        return bundled.CHECKPOINT
    path, title = Path(model), Path(model).name
    if isinstance(model, str) and (name := hub_name(model)):
        from models.checkpoint import hub

        path, title = hub.download(name.repository, name.revision, on_download), name.repository
    if path.is_dir() and (archive := nemo_archive((entry.name for entry in path.iterdir()), title)):
        return path / archive
    return path


def model_id(model: str) -> str:
    """Return what clients call a model: its name on the hub, or that of its file or folder."""
    if name := hub_name(model):
        return name.repository
    path = bundled.CHECKPOINT if model == bundled.NAME else Path(model)
    return path.name.removesuffix(".nemo")
