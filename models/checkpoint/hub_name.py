"""What a model on the hub is called, and who is told how its download goes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
