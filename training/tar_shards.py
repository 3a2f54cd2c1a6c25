"""Tar files of recordings, as NeMo and Lhotse write them; members are read in place, in any order."""

import hashlib
import tarfile
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from training.clip import ByteRange
from training.errors import ManifestError


class Members:
    """The positions of a tar's members by their names: digests, offsets and sizes, 24 bytes for each."""

    def __init__(self, path: Path, named: Callable[[str], str | None]) -> None:
        """Read the headers of a tar; ``named`` gives the name by which to find a member, from its own, or None.

        Raises:
            ManifestError: if it is damaged, compressed or not there.
        """
        digests, positions = array("Q"), array("Q")
        try:
            size = path.stat().st_size
            with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # it would keep all, a kilobyte each
                    if not member.isfile() or (name := named(member.name)) is None:
                        continue
                    if member.offset_data + member.size > size:
                        raise ManifestError(f"{path} ends within {member.name}: it is cut short")
                    digests.append(_digest(name))
                    positions.extend((member.offset_data, member.size))
                file.seek(tar.offset)
                if any(file.read(tarfile.BLOCKSIZE)):  # tarfile takes a damaged header for the end
                    raise ManifestError(f"{path} is damaged at byte {tar.offset}")
        except OSError as error:
            raise ManifestError(f"{path}: {error.strerror or error}") from error
        except tarfile.TarError as error:
            raise ManifestError(f"{path} is not a readable tar, or is compressed: {error}") from error
        found = np.asarray(digests, dtype=np.uint64)
        order = np.argsort(found, kind="stable")
        self._digests = found[order]
        self._positions = np.asarray(positions, dtype=np.uint64).reshape(-1, 2)[order]

    def get(self, name: str) -> ByteRange | None:
        """Return the position of a member, the last one of that name, or None."""
        digest = _digest(name)
        index = int(np.searchsorted(self._digests, np.uint64(digest), side="right")) - 1
        if index < 0 or int(self._digests[index]) != digest:
            return None
        return ByteRange(*self._positions[index].tolist())


@lru_cache(maxsize=2**16)
def members_of(path: Path) -> Members:
    """Return the members of a tar by their names.

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
    """Return the tar that NeMo wrote for a shard of a manifest: in its folder, or in the one above.

    Raises:
        ValueError: if there is none.
    """
    names = (f"audio_{shard}.tar", f"tarred_audio_{shard}.tar")
    folders = (manifest.parent, manifest.parent.parent)
    found = next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)
    if found is None:
        raise ValueError(f"'shard_id' is {shard!r}, and there is no {names[0]} beside the manifest")
    return found


def _digest(name: str) -> int:
    content = name.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
