"""Tar files of recordings, as NeMo writes them; members are read in place, in any order."""

import tarfile
from functools import lru_cache
from pathlib import Path

from training.clip import ByteRange
from training.errors import ManifestError


@lru_cache(maxsize=2**16)
def members_of(path: Path) -> dict[str, ByteRange]:
    """Return the positions of a tar's members by their names.

    Raises:
        ManifestError: if it is damaged, compressed or not there.
    """
    found: dict[str, ByteRange] = {}
    try:
        size = path.stat().st_size
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep all, a kilobyte each
                if not member.isfile():
                    continue
                if member.offset_data + member.size > size:
                    raise ManifestError(f"{path} ends within {member.name}: it is cut short")
                found[member.name] = ByteRange(member.offset_data, member.size)
            file.seek(tar.offset)
            if any(file.read(tarfile.BLOCKSIZE)):  # tarfile takes a damaged header for the end
                raise ManifestError(f"{path} is damaged at byte {tar.offset}")
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror or error}") from error
    except tarfile.TarError as error:
        raise ManifestError(f"{path} is not a readable tar, or is compressed: {error}") from error
    return found


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
