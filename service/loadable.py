"""Which models a request may bring in: single ones, those of a folder, and names on the hub by a pattern."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_PATTERN = re.compile(r"[\w.*?-]+/[\w.*?-]+", re.ASCII)


def is_pattern(entry: str) -> bool:
    """Tell whether an entry means names on the hub (`nvidia/parakeet-*`)."""
    return "=" not in entry and ("*" in entry or "?" in entry) and bool(_PATTERN.fullmatch(entry))


def is_folder_of_models(entry: str) -> bool:
    """Tell whether an entry is a folder that holds checkpoints, and not a checkpoint itself."""
    path = Path(entry)
    return "=" not in entry and path.is_dir() and not (path / "config.json").exists()


class Loadable:
    """The models that may be had; folders are looked at each time, so that what is put there can be asked for.

    Args:
        checkpoints: single ones, by id.
        folders: of `.nemo` files, and of folders that hold one checkpoint each; an id is a file's or a folder's name.
        patterns: of names on the hub.
    """

    def __init__(self, checkpoints: dict[str, str], folders: Iterable[Path], patterns: Iterable[str]) -> None:
        self._checkpoints = checkpoints
        self._folders = tuple(folders)
        self._patterns = tuple(patterns)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self._checkpoints or self._folders or self._patterns)

    def checkpoint(self, model: str) -> str | None:
        """Return where the weights of a model come from, None where there is none of this id. Reads folders."""
        if (known := self._checkpoints.get(model)) is not None:
            return known
        # Looked for in what is there, and never made into a path: a client may ask for `../other`.
        if (found := self._found().get(model)) is not None:
            return str(found)
        matches = _HUB_NAME.fullmatch(model) and any(fnmatchcase(model, pattern) for pattern in self._patterns)
        # What is a path here would be taken for one, and not for a name on the hub.
        return model if matches and not Path(model).exists() else None

    def ids(self) -> list[str]:
        """Return what may be asked for, but for what only a pattern allows. Reads folders."""
        return list(dict.fromkeys((*self._checkpoints, *self._found())))

    def _found(self) -> dict[str, Path]:
        return {model: path for folder in reversed(self._folders) for model, path in _models_of(folder)}


def _models_of(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # it may come back
        return
    for path in entries:
        if path.name.startswith(".") or not path.name.isprintable():
            continue
        if path.suffix == ".nemo" or (path.is_dir() and _is_checkpoint(path)):
            yield path.name.removesuffix(".nemo"), path


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "config.json").is_file() or any(folder.glob("*.nemo"))
