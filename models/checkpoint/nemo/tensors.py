"""Reading tensors from a file that may have been built to run code or to exhaust memory."""

import pickle
import re
import warnings
import zipfile
from io import BytesIO
from typing import IO

import torch
from torch import Tensor
from torch._C import PyTorchFileReader

from models.checkpoint.nemo.pickles import shares_tuples
from models.errors import UnreadableCheckpointError, UnsafeCheckpointError, shown

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64)
_ZIP_MAGIC = b"PK\x03\x04"
# At the end of a zip file: its end record, and before it those of large files: the locator of an end record, and that.
_END_BYTES, _LOCATOR_BYTES, _LARGE_END_BYTES = 22, 20, 56
# Before torch 1.6 a file began with five pickles: magic number, version, facts about the machine, tensors, storages.
_LEGACY_PICKLES = 5
_MAX_TENSORS = 100_000
# torch.save numbers storages. One with letters could be read into memory many times, as data/a and as data/A.
_NOT_NUMBERED = re.compile(r"data/\d*\D", re.IGNORECASE)


def read_tensors(stream: IO[bytes], size: int, source: str) -> dict[str, Tensor]:
    """Return the named tensors that ``torch.save`` wrote, on the CPU, as they are in the file.

    Args:
        stream: the file, seekable.
        size: its length in bytes.
        source: the file's name, for messages.

    Raises:
        UnreadableCheckpointError: if it is damaged, or holds something else than named tensors.
        UnsafeCheckpointError: if it would run code, or describes far more than it holds.
    """
    try:
        _refuse_bombs(stream, size, source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old formats, which the user cannot change
            content = torch.load(stream, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeCheckpointError(f"{source} holds more than tensors, {_wanted(str(error))}") from error
    except UnsafeCheckpointError:
        raise
    except Exception as error:  # damage shows as many kinds of errors
        raise UnreadableCheckpointError(f"{source} is damaged: {error}") from error
    return _checked(content, size, source)


def _refuse_bombs(stream: IO[bytes], size: int, source: str) -> None:
    """Check the whole file, and seek back to the start."""
    zipped = stream.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    stream.seek(0)
    if zipped:
        _refuse_growth(stream, size, source)
        stream.seek(0)
        reader = PyTorchFileReader(stream)  # of records with similar names, it tells which one torch reads
        if any(map(_NOT_NUMBERED.match, reader.get_all_records())):
            raise UnsafeCheckpointError(f"{source} has storages that are not numbered")
        bomb = shares_tuples(BytesIO(reader.get_record("data.pkl")))
    else:
        bomb = any(shares_tuples(stream) for _ in range(_LEGACY_PICKLES))
    if bomb:
        raise UnsafeCheckpointError(f"{source} refers back to what no honest file has twice")
    stream.seek(0)


def _refuse_growth(stream: IO[bytes], size: int, source: str) -> None:
    """Refuse records that would grow while they are read; ``torch.save`` never compresses."""
    with zipfile.ZipFile(stream) as archive:
        if archive.start_dir != _directory(stream, size):
            raise UnsafeCheckpointError(f"{source} has a directory in another place than torch.save writes it")
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise UnsafeCheckpointError(f"{source} has compressed records")
    if sum(record.file_size for record in records) > size:
        raise UnsafeCheckpointError(f"{source} has records larger than itself")


def _directory(stream: IO[bytes], size: int) -> int | None:
    """Return where torch looks for the directory of a zip file; None where another reader might look elsewhere.

    `zipfile` takes the directory that ends at the end record, torch the one that the end record names.
    """
    end = size - _END_BYTES
    record, locator = _bytes_at(stream, end, _END_BYTES), _bytes_at(stream, end - _LOCATOR_BYTES, _LOCATOR_BYTES)
    if not record.startswith(b"PK\5\6") or not record.endswith(b"\0\0"):  # the length of a comment
        return None
    if not locator.startswith(b"PK\6\7"):
        return int.from_bytes(record[16:20], "little")
    place = end - _LOCATOR_BYTES - _LARGE_END_BYTES
    large = _bytes_at(stream, place, _LARGE_END_BYTES)
    if int.from_bytes(locator[8:16], "little") != place or not large.startswith(b"PK\6\6"):
        return None
    return int.from_bytes(large[48:56], "little")


def _bytes_at(stream: IO[bytes], place: int, count: int) -> bytes:
    stream.seek(max(0, place))
    return stream.read(count)


def _wanted(message: str) -> str:
    found = re.search(r"GLOBAL (\S+)", message)
    return f"namely {shown(found[1])}; such code is never run" if found else "and only tensors are read"


def _checked(content: object, size: int, source: str) -> dict[str, Tensor]:
    if not isinstance(content, dict):
        raise UnreadableCheckpointError(f"{source} holds a {type(content).__name__}, not named tensors")
    if len(content) > _MAX_TENSORS:
        raise UnsafeCheckpointError(f"{source} holds more than {_MAX_TENSORS} tensors")
    described = 0
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UnreadableCheckpointError(f"{source}: {shown(name)} is not a named tensor")
        if tensor.dtype not in _DTYPES or tensor.layout != torch.strided or tensor.device.type != "cpu":
            kind = f"{tensor.dtype}, {tensor.layout}, {tensor.device}"
            raise UnreadableCheckpointError(f"{source}: {shown(name)} is not a plain tensor of numbers ({kind})")
        described += tensor.numel() * tensor.element_size()
    if described > 2 * size:  # twice, because tied tensors are in the file once
        raise UnsafeCheckpointError(f"{source} describes tensors of {described} bytes in a file of {size}")
    return content
