"""The models that a request may load: single ones, and those of a folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path


def is_folder_of_models(entry: str) -> bool:
    """Return whether an entry is a folder of checkpoints; one with a `config.json` is a checkpoint itself."""
    path = Path(entry)
    return "=" not in entry and path.is_dir() and not (path / "config.json").exists()


class Loadable:
    """The models that may be loaded. Folders are read at each call, so that new files count.

    Args:
        folders: folders of `.nemo` files, and of folders with a checkpoint each; ids are their names without `.nemo`.
    """

    def __init__(self, checkpoints: dict[str, str], folders: Iterable[Path]) -> None:
        self._checkpoints = checkpoints
        self._folders = tuple(folders)

    @property
    def is_empty(self) -> bool:
        """Whether no model may be loaded."""
        return not (self._checkpoints or self._folders)

    def checkpoint(self, model: str) -> str | None:
        """Return the checkpoint of a model, or None if there is no such id. Reads folders."""
        if (known := self._checkpoints.get(model)) is not None:
            return known
        # The id is looked up among the files, and never made into a path: a client may send `../other`.
        found = self._found().get(model)
        return None if found is None else str(found)

    def ids(self) -> list[str]:
        """Return the ids of single checkpoints and of those in folders. Reads folders."""
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
