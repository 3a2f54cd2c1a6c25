"""The models that a request may load: single ones, those of a folder, and names on the hub that match a pattern."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_PATTERN = re.compile(r"[\w.*?-]+/[\w.*?-]+", re.ASCII)


def is_pattern(entry: str) -> bool:
    """Return whether an entry is a pattern of names on the hub (`nvidia/parakeet-*`)."""
    return "=" not in entry and ("*" in entry or "?" in entry) and bool(_PATTERN.fullmatch(entry))


def is_folder_of_models(entry: str) -> bool:
    """Return whether an entry is a folder of checkpoints; one with a `config.json` is a checkpoint itself."""
    path = Path(entry)
    return "=" not in entry and path.is_dir() and not (path / "config.json").exists()


class Loadable:
    """The models that may be loaded. Folders are read at each call, so that new files count.

    Args:
        checkpoints: single checkpoints, by id.
        folders: folders of `.nemo` files, and of folders with a checkpoint each; ids are their names without `.nemo`.
        patterns: patterns of names on the hub.
    """

    def __init__(self, checkpoints: dict[str, str], folders: Iterable[Path], patterns: Iterable[str]) -> None:
        self._checkpoints = checkpoints
        self._folders = tuple(folders)
        self._patterns = tuple(patterns)

    @property
    def is_empty(self) -> bool:
        """Whether no model may be loaded."""
        return not (self._checkpoints or self._folders or self._patterns)

    def checkpoint(self, model: str) -> str | None:
        """Return the checkpoint of a model, or None if there is no such id. Reads folders."""
        if (known := self._checkpoints.get(model)) is not None:
            return known
        # The id is looked up among the files, and never made into a path: a client may send `../other`.
        if (found := self._found().get(model)) is not None:
            return str(found)
        matches = _HUB_NAME.fullmatch(model) and any(fnmatchcase(model, pattern) for pattern in self._patterns)
        # A name that is also a local path would be loaded from that path.
        return model if matches and not _may_exist(Path(model)) else None

    def keeps(self, model: str) -> list[str] | None:
        """Return the checkpoints that are never removed for this model if a pattern allows it, or None if none does."""
        is_named = model in self._checkpoints or "/" not in model  # ids from folders are names of files
        return None if is_named else list(self._checkpoints.values())

    def ids(self) -> list[str]:
        """Return the ids of single checkpoints and of those in folders; patterns cannot be listed. Reads folders."""
        return list(dict.fromkeys((*self._checkpoints, *self._found())))

    def _found(self) -> dict[str, Path]:
        return {model: path for folder in reversed(self._folders) for model, path in _models_of(folder)}


def _models_of(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # the folder may come back
        return
    for path in entries:
        if path.name.startswith(".") or not path.name.isprintable():
            continue
        if path.suffix == ".nemo" or _is_checkpoint(path):
            yield path.name.removesuffix(".nemo"), path


def _is_checkpoint(folder: Path) -> bool:
    try:
        return folder.is_dir() and ((folder / "config.json").is_file() or any(folder.glob("*.nemo")))
    except OSError:  # a folder that this process may not read, such as lost+found
        return False


def _may_exist(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that this process may not read, or longer than names on the hub are
        return True
