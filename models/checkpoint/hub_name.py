"""Names of models on the hub."""

import re
from pathlib import Path
from typing import NamedTuple

_HUB_NAME = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[^@\s]+))?", re.ASCII)


class HubName(NamedTuple):
    """The name of a model on the hub.

    Attributes:
        repository: owner and name, such as ``nvidia/parakeet-tdt-0.6b-v2``.
        revision: a branch, a tag or a commit; None for the repository's default branch.
    """

    repository: str
    revision: str | None


def hub_name(model: str) -> HubName | None:
    """Parse ``model`` as a name on the hub; None if it is not one, exists as a path, or ends in ``.nemo``."""
    found = _HUB_NAME.fullmatch(model)
    if found is None or model.endswith(".nemo") or Path(model).exists():
        return None
    return HubName(found["repository"], found["revision"])
