"""Tar files of recordings, as NeMo and Lhotse write them; members are read in place, in any order."""

import tarfile
from functools import lru_cache
from pathlib import Path

from training.clip import Part
from training.errors import ManifestError


@lru_cache(maxsize=1024)
def members_of(path: Path) -> dict[str, Part]:
    """Return the places of a tar's members, by their names.

    Raises:
        ManifestError: if it is damaged, compressed or not there.
    """
    try:
        size = path.stat().st_size
        with tarfile.open(path, "r:") as tar:
            found = {member.name: Part(member.offset_data, member.size) for member in tar if member.isfile()}
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror or error}") from error
    except tarfile.TarError as error:
        raise ManifestError(f"{path} is not a readable tar, or is compressed: {error}") from error
    for name, part in found.items():
        if part.offset + part.size > size:
            raise ManifestError(f"{path} ends within {name}: it is cut short")
    return found


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
