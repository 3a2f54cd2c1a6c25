"""Checking the names of classes in a NeMo configuration."""

from collections.abc import Container, Iterable
from typing import Protocol

from models.checkpoint.section import Section
from models.errors import UnsupportedValueError

# What people call some classes that are not supported, for error messages.
_KNOWN_FAMILIES = {
    "SqueezeformerEncoder": "Squeezeformer",
    "HATJoint": "a hybrid autoregressive transducer",
}


class Names(Container[str], Iterable[str], Protocol):
    """Names that can be looked up and listed."""


def class_name(section: Section, key: str, supported: Names) -> str:
    """Return the name of the class whose path is the value of a key.

    Raises:
        UnsupportedValueError: if it is not one of ``supported``.
    """
    name = section.text(key).rpartition(".")[2]
    if name not in supported:
        known = f"{name} ({_KNOWN_FAMILIES[name]})" if name in _KNOWN_FAMILIES else name
        raise UnsupportedValueError(section.key(key), known, ", ".join(supported))
    return name
