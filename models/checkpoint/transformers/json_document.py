"""Reading a JSON document that may be built to exhaust its reader."""

import json
from typing import Any, NoReturn

from models.errors import UnreadableCheckpointError, UnsafeCheckpointError

# A tokenizer of 256,000 pieces has 256,000 numbers, and up to 768,000 merges of two pieces each.
MAX_VALUES = 3_000_000


def parse_json(content: bytes, source: str) -> dict[str, Any]:
    """Return the object that a JSON document holds.

    Args:
        content: the document.
        source: the document's name, for messages.

    Raises:
        UnreadableCheckpointError: if it is not JSON, has a key twice, or is not an object.
        UnsafeCheckpointError: if it holds more values, or is nested deeper, than any configuration.
    """
    # Every value but the first comes after one of these characters; few of them are inside strings.
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise UnsafeCheckpointError(f"{source} holds more than {MAX_VALUES} values")
    try:
        document = json.loads(content.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise UnsafeCheckpointError(f"{source} is nested too deep") from error
    except ValueError as error:
        raise UnreadableCheckpointError(f"{source} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableCheckpointError(f"{source} holds a {type(document).__name__}, not a configuration")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in the same object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
