"""Tar files of recordings, as NeMo writes them; members are read in place, in any order."""

import hashlib
import tarfile
from array import array
from functools import lru_cache
from pathlib import Path

import numpy as np

from training.clip import ByteRange
from training.errors import ManifestError


class Members:
    """The positions of a tar's members by their names: digests, offsets and sizes, 24 bytes for each."""

    def __init__(self, path: Path) -> None:
        """Read the headers of a tar.

        Raises:
            ManifestError: if it is damaged, compressed or not there.
        """
        digests, positions = array("Q"), array("Q")
        try:
            size = path.stat().st_size
            with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # it would keep all, a kilobyte each
                    if not member.isfile():
                        continue
                    if member.offset_data + member.size > size:
                        raise ManifestError(f"{path} ends within {member.name}: it is cut short")
                    digests.append(_digest(member.name))
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
    return Members(path)


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
