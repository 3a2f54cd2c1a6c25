"""Choosing the files of a checkpoint from a folder, or from a repository on the hub."""

import re
from collections.abc import Iterable

from models.errors import UnreadableCheckpointError

# The files of transformers that are read.
_TRANSFORMERS_FILES = re.compile(
    r"(config|generation_config|processor_config|preprocessor_config|tokenizer|tokenizer_config)\.json"
    r"|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
)


def nemo_archive(names: Iterable[str], title: str) -> str | None:
    """Return the ``.nemo`` file among ``names``, or None.

    Args:
        names: names of the files.
        title: name of the folder or the repository. Of several ``.nemo`` files, the one with this name counts.

    Raises:
        UnreadableCheckpointError: if there are several, and none has that name.
    """
    archives = sorted(name for name in names if name.endswith(".nemo") and "/" not in name)
    if len(archives) < 2:
        return next(iter(archives), None)
    namesake = f"{title.rpartition('/')[2]}.nemo"
    if namesake not in archives:
        raise UnreadableCheckpointError(f"{title} has several checkpoints, none of its own name: {', '.join(archives)}")
    return namesake


def needed_files(names: Iterable[str], title: str) -> list[str]:
    """Return the files of a repository that its checkpoint consists of: its ``.nemo`` file, else transformers' files.

    Raises:
        UnreadableCheckpointError: if it has neither, or as for `nemo_archive`.
    """
    names = sorted(names)
    if archive := nemo_archive(names, title):
        return [archive]
    if "config.json" not in names:
        raise UnreadableCheckpointError(f"{title} has neither a .nemo file nor a config.json")
    return [name for name in names if _TRANSFORMERS_FILES.fullmatch(name)]
