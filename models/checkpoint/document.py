"""Reading a YAML document that may be built to exhaust its reader."""

import re
from typing import Any

import yaml

from models.errors import CheckpointError, UnreadableCheckpointError, UnsafeCheckpointError

MAX_DEPTH = 40
# Configurations hold vocabularies of some ten thousand pieces, up to three times.
MAX_NODES = 500_000
# A list of manifests, one value, may be long. PyYAML's time for a long number grows with the square of its length.
MAX_SCALAR = 100_000

# The loader written in C is ten times as fast; both build plain data only.
_SafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FLOAT, _DATE = "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"
# Numbers that PyYAML takes for text because they have an exponent, but no point or no sign: 1e-5, 1.5e3.
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+")


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Takes plain scalars for what OmegaConf, NeMo's reader, takes them for: no dates, and more numbers."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # that of PyYAML's class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATE]
        for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_FLOAT, re.compile(rf"^(?:{_EXPONENT.pattern})$"), list("-+0123456789."))


def parse_document(content: bytes, source: str) -> dict[Any, Any]:
    """Return the mapping that a YAML document holds, as plain data.

    Args:
        content: the document.
        source: the document's name, for messages.

    Raises:
        UnreadableCheckpointError: if it is not YAML, or not a mapping.
        UnsafeCheckpointError: if it is deeper, or has more or longer values, than any configuration.
    """
    try:
        _check_size(content, source)
        document = yaml.load(content, Loader=_Loader)  # noqa: S506  # a safe loader, which the rule cannot see
    except CheckpointError:
        raise
    except Exception as error:  # PyYAML lets through any exception of malformed tagged values
        raise UnreadableCheckpointError(f"{source} is not YAML: {error}") from error
    if document is None:
        raise UnreadableCheckpointError(f"{source} is empty")
    if not isinstance(document, dict):
        raise UnreadableCheckpointError(f"{source} holds a {type(document).__name__}, not a configuration")
    return document


def _check_size(content: bytes, source: str) -> None:
    """Count nodes as aliases would expand them, without expanding them."""
    nodes = 0
    anchored: dict[str, int] = {}
    open_collections: list[tuple[str | None, int]] = []
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchored:
                raise UnsafeCheckpointError(f"{source}: the alias *{event.anchor} has no complete value before it")
            nodes += anchored[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            open_collections.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_SCALAR:
                raise UnsafeCheckpointError(f"{source} has a value of {len(event.value)} characters")
            nodes += 1
            if event.anchor is not None:
                anchored[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_collections.pop()
            if anchor is not None:
                anchored[anchor] = nodes - before
        if len(open_collections) > MAX_DEPTH:
            raise UnsafeCheckpointError(f"{source} is nested deeper than {MAX_DEPTH} levels")
        if nodes > MAX_NODES:
            raise UnsafeCheckpointError(f"{source} expands to more than {MAX_NODES} values")
