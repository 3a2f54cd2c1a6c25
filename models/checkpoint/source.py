"""From what a user calls a model to the file or the folder that holds its checkpoint."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from models import bundled
from models.checkpoint.layout import nemo_archive

# Called while a file of a model is downloaded, with the bytes that are here and those of the whole file, if known.
OnDownload = Callable[[int, int | None], None]

_HUB_NAME = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[^@\s]+))?", re.ASCII)


class HubName(NamedTuple):
    """The name of a model on the hub.

    Attributes:
        repository: owner and name, such as ``nvidia/parakeet-tdt-0.6b-v2``.
        revision: a branch, a tag or a commit; None for what the repository shows first.
    """

    repository: str
    revision: str | None


def hub_name(model: str) -> HubName | None:
    """Return the name on the hub that ``model`` is, or None if it is a path: what is there, or ends in ``.nemo``."""
    found = _HUB_NAME.fullmatch(model)
    if found is None or model.endswith(".nemo") or Path(model).exists():
        return None
    return HubName(found["repository"], found["revision"])


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
