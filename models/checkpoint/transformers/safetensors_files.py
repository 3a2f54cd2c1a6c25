"""Reading tensors from safetensors files, which hold no code but may have forged headers."""

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.checkpoint.transformers.folder import Folder
from models.checkpoint.transformers.json_document import parse_json
from models.errors import UnreadableCheckpointError, UnsafeCheckpointError, shown

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER_BYTES = 16 * 2**20
MAX_SHARDS = 256

_DTYPES = ("F16", "BF16", "F32", "F64", "I64")
_LENGTH_BYTES = 8


def read_safetensors(folder: Folder) -> dict[str, Tensor]:
    """Return the tensors of a folder's one weights file, or of the shards that its index names.

    The tensors are memory-mapped from the files, on the CPU, in the dtype of the files.

    Raises:
        UnreadableCheckpointError: if a file is missing or damaged, or the index and the shards do not agree.
        UnsafeCheckpointError: if a file lies outside of the folder or claims to hold more than files do.
    """
    if folder.has(WEIGHTS_FILE):
        return _read_file(folder, WEIGHTS_FILE)
    if not folder.has(INDEX_FILE):
        raise UnreadableCheckpointError(f"{folder.path} has neither {WEIGHTS_FILE} nor {INDEX_FILE}")
    tensors: dict[str, Tensor] = {}
    for shard, names in _shards(folder).items():
        found = _read_file(folder, shard)
        if found.keys() != names:
            odd = min(found.keys() ^ names)
            raise UnreadableCheckpointError(f"{folder.path}: {shown(odd)} is in {shown(shard)} or in {INDEX_FILE} only")
        tensors |= found
    return tensors


def _shards(folder: Folder) -> dict[str, set[str]]:
    source = f"{folder.path}: {INDEX_FILE}"
    places = parse_json(folder.read(INDEX_FILE, MAX_HEADER_BYTES), source).get("weight_map")
    if not isinstance(places, dict):
        raise UnreadableCheckpointError(f"{source} has no weight_map")
    shards: dict[str, set[str]] = {}
    for name, shard in places.items():
        if not isinstance(shard, str) or not shard.endswith(".safetensors"):
            raise UnreadableCheckpointError(f"{source} places {shown(name)} in {shown(shard)}")
        shards.setdefault(shard, set()).add(name)
    if len(shards) > MAX_SHARDS:
        raise UnsafeCheckpointError(f"{source} names more than {MAX_SHARDS} files")
    return shards


def _read_file(folder: Folder, name: str) -> dict[str, Tensor]:
    path, _ = folder.locate(name)
    _refuse_long_header(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = file.keys()
            for tensor in names:
                dtype = file.get_slice(tensor).get_dtype()
                if dtype not in _DTYPES:
                    raise UnreadableCheckpointError(f"{path}: {shown(tensor)} holds {dtype}, not plain numbers")
            return {tensor: file.get_tensor(tensor) for tensor in names}
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UnreadableCheckpointError):
            raise
        raise UnreadableCheckpointError(f"{path} is damaged: {error}") from error


def _refuse_long_header(path: Path) -> None:
    """Check the length of the header before anything parses its JSON."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    except OSError as error:
        raise UnreadableCheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if length > MAX_HEADER_BYTES:
        raise UnsafeCheckpointError(f"{path} claims to have a header of {length} bytes")
