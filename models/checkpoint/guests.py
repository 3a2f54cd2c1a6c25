"""Guests in the hub's cache: models that requests chose, by a pattern of names. They have a share of the disk.

A client can name one model of the pattern after the other, and each stays in the cache. So guests get
half of the disk that nothing else takes, together; for a new one, those go that were not used for the longest time.
An empty file in a model's folder says that it is a guest, and its time of change when it was last used. What an
operator names, or another program downloads, has no such file, is not counted, and never goes.
"""

import logging
import os
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name

from models.checkpoint.hub_name import hub_name
from models.errors import DownloadError

log = logging.getLogger("steno.hub")

_MARK = ".steno-guest"
_SHARE = 0.5


def admit(repository: str, more_bytes: int, keeps: Collection[str]) -> None:
    """Make room in the cache for a guest's download, and mark it as a guest if the cache has nothing of it yet.

    Engines of several devices do this at the same time for one model, and come to the same result.

    Args:
        repository: owner and name.
        more_bytes: what is downloaded: its files that are not in the cache.
        keeps: checkpoints that stay although they are guests: names on the hub; others do not matter.

    Raises:
        DownloadError: if there is no room, or too little can be freed.
    """
    cache, folder = Path(constants.HF_HUB_CACHE), _folder(repository)
    cache.mkdir(parents=True, exist_ok=True)
    # The hub's library has noted the revision already.
    is_guest = (folder / _MARK).exists() or not _has_files(folder)
    sizes = {mark.parent: _bytes(mark.parent) for mark in cache.glob(f"models--*/{_MARK}")}
    # What an engine beside this one has of a file so far counts as disk that is left, as the file is in more_bytes.
    has, has_in_part = sizes.pop(folder, (0, 0))
    takes = has + more_bytes
    others = {one: sum(parts) for one, parts in sizes.items()}
    share = int(_SHARE * (shutil.disk_usage(cache).free + sum(others.values()) + has + has_in_part))
    staying = {_folder(name.repository) for one in keeps if (name := hub_name(one))}
    kept = sum(size for one, size in others.items() if one in staying)
    if kept + takes > share:
        raise DownloadError(
            f"{repository} takes {takes} bytes, and of the {share} that models on demand by pattern may have on this "
            f"disk, loaded ones hold {kept}"
        )
    for one in sorted(others.keys() - staying, key=_last_used):
        if sum(others.values()) + takes <= share:
            break
        log.info("model removed from the cache", extra={"folder": one.name, "bytes": others.pop(one)})
        shutil.rmtree(one, ignore_errors=True)
    if is_guest:
        folder.mkdir(exist_ok=True)
        (folder / _MARK).touch()


def note_use(repository: str) -> None:
    """Note that a model is used now, if it is a guest."""
    with suppress(OSError):
        os.utime(_folder(repository) / _MARK)


def drop_if_empty(repository: str) -> None:
    """Remove what the hub's library noted of a model that has no file here: requests may name many such."""
    if not _has_files(folder := _folder(repository)):
        shutil.rmtree(folder, ignore_errors=True)


def keep(repository: str) -> None:
    """Note that an operator named a model, so it is no guest."""
    (_folder(repository) / _MARK).unlink(missing_ok=True)


def _folder(repository: str) -> Path:
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")


def _has_files(folder: Path) -> bool:
    return any(folder.glob("blobs/*"))


def _bytes(folder: Path) -> tuple[int, int]:
    """Return the bytes of a model's whole files in the cache, and of those that are not whole."""
    whole = in_part = 0
    for blob in folder.glob("blobs/*"):
        try:
            size = blob.stat().st_size
        except OSError:  # it has just become whole, or gone
            continue
        if blob.suffix == ".incomplete":
            in_part += size
        else:
            whole += size
    return whole, in_part


def _last_used(folder: Path) -> float:
    try:
        return (folder / _MARK).stat().st_mtime
    except OSError:  # another engine removes it
        return time.time()
