"""Tar files of recordings, as NeMo and Lhotse write them; members are read in place, in any order."""

import hashlib
import tarfile
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from training.clip import Part
from training.errors import ManifestError


@lru_cache(maxsize=1024)
def members_of(path: Path) -> dict[str, Part]:
    """Return the positions of a tar's members, by their names.

    Raises:
        ManifestError: if it is damaged, compressed or not there.
    """
    return Members(path, lambda name: name)


@lru_cache(maxsize=2**16)
def members_by_stem(path: Path) -> Members:
    """Return the recordings of a tar that Lhotse wrote, by the ids of their cuts.

    Raises:
        ManifestError: if the tar cannot be read.
    """
    others = (".json", ".nodata", ".nometa")
    return Members(path, lambda name: None if name.endswith(others) else name.rsplit(".", 1)[0])


def forget_members() -> None:
    """Free what ``members_of`` and ``members_by_stem`` keep."""
    members_of.cache_clear()
    members_by_stem.cache_clear()


@lru_cache(maxsize=1024)
def tar_of_nemo(manifest: Path, shard: object) -> Path:
    """Return the tar that NeMo wrote for a shard of a manifest: beside it, or beside the folder of sharded manifests.

    Raises:
        ValueError: if there is none.
    """
    names = (f"audio_{shard}.tar", f"tarred_audio_{shard}.tar")
    places = (manifest.parent, manifest.parent.parent)
    found = next((place / name for place in places for name in names if (place / name).is_file()), None)
    if found is None:
        raise ValueError(f"'shard_id' is {shard!r}, and there is no {names[0]} beside the manifest")
    return found


def _digest(name: str) -> int:
    content = name.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
