"""Reading one section of a configuration key by key, so that no key is overlooked."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from models.errors import UnreadableCheckpointError, UnsupportedValueError, shown

_ABSENT = object()
# What people call some classes of NeMo that are not supported, for error messages.
_KNOWN_FAMILIES = {"SqueezeformerEncoder": "Squeezeformer", "HATJoint": "a hybrid autoregressive transducer"}


class Section:
    """A mapping of a configuration that remembers which of its keys were read.

    An absent key has the default. A null is a value, which may mean something else. The text ``None``, which Python's
    programs write into YAML, is a null: so it stands in released checkpoints where NeMo does not look at the value.
    """

    def __init__(self, path: str, values: Mapping[Any, Any]) -> None:
        self._path = path
        self._values = values
        self._seen: set[Any] = set()

    def key(self, name: object) -> str:
        """Return the full name of a key, for messages."""
        name = name if isinstance(name, str) else shown(name)
        return f"{self._path}.{name}" if self._path else name

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  # what YAML holds
        """Return a value unchecked."""
        self._seen.add(name)
        return _as_meant(self._values.get(name, default))

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int) -> int:
        """Return an integer within bounds; without a default the key must be there."""
        value = self.get(name, default)
        if type(value) is not int or not low <= value <= high:
            raise UnsupportedValueError(self.key(name), value, f"whole numbers from {low} to {high}")
        return value

    def number(self, name: str, default: float | None, *, low: float, high: float) -> float:
        """Return a number within bounds."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not low <= value <= high:
            raise UnsupportedValueError(self.key(name), value, f"numbers from {low} to {high}")
        return float(value)

    def optional_number(self, name: str, default: float | None, *, low: float, high: float) -> float | None:
        """Return a number within bounds, or None for a null."""
        return None if self.get(name, default) is None else self.number(name, default, low=low, high=high)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise UnsupportedValueError(self.key(name), value, "true, false")
        return value

    def text(self, name: str) -> str:
        """Return a string that must be there."""
        value = self.get(name)
        if not isinstance(value, str):
            raise UnsupportedValueError(self.key(name), value, "text")
        return value

    def class_name(self, name: str, supported: Collection[str]) -> str:
        """Return the name of the class whose path is the value, one of ``supported``."""
        found = self.text(name).rpartition(".")[2]
        if found not in supported:
            known = f"{found} ({_KNOWN_FAMILIES[found]})" if found in _KNOWN_FAMILIES else found
            raise UnsupportedValueError(self.key(name), known, ", ".join(supported))
        return found

    def file_name(self, name: str) -> str:
        """Return the base name of a file of the checkpoint; the value may be its path on another machine."""
        return self.text(name).removeprefix("nemo:").rpartition("/")[2]

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list of strings; empty when it is absent or null."""
        return self._listed(name, lambda item: isinstance(item, str), "text")

    def integers(self, name: str, *, low: int, high: int) -> tuple[int, ...]:
        """Return a list of integers within bounds; empty when it is absent or null."""
        return self._listed(
            name, lambda item: type(item) is int and low <= item <= high, f"whole numbers from {low} to {high}"
        )

    def _listed(self, name: str, fits: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
        value = self.get(name)
        if value is not None and not (isinstance(value, list) and all(map(fits, value))):
            raise UnsupportedValueError(self.key(name), value, f"a list of {what}")
        return tuple(value or ())

    def section(self, name: str) -> "Section":
        """Return a section within this one; empty when it is absent or null."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise UnreadableCheckpointError(f"{self.key(name)} is not a section of keys and values")
        return Section(self.key(name), value or {})

    def sections(self, name: str, *, most: int) -> list["Section"]:
        """Return a list of 1 to ``most`` sections that must be there."""
        values = self.get(name)
        self.require(name, isinstance(values, list) and 0 < len(values) <= most, f"a list of 1 to {most} sections")
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                raise UnreadableCheckpointError(f"{self.key(name)}[{index}] is not a section of keys and values")
        return [Section(f"{self.key(name)}[{index}]", value) for index, value in enumerate(values)]

    def names(self) -> tuple[str, ...]:
        """Return the names of all keys, in order."""
        for name in self._values:
            if not isinstance(name, str):
                raise UnsupportedValueError(self.key(name), name, "names that are text")
        return tuple(self._values)

    def expect(self, name: str, *supported: Any) -> None:  # noqa: ANN401  # what YAML holds
        """Refuse a value that is present and not one of ``supported``."""
        value = self.get(name, _ABSENT)
        if value is not _ABSENT and not any(type(value) is type(one) and value == one for one in supported):
            raise UnsupportedValueError(self.key(name), value, ", ".join(map(_as_yaml, supported)))

    def require(self, name: str, met: bool, supported: str) -> None:
        """Refuse the value at a key unless a condition on it is met."""
        if not met:
            raise UnsupportedValueError(self.key(name), self.get(name), supported)

    def ignore(self, *names: str) -> None:
        """Mark keys as read that cannot change a result."""
        self._seen.update(names)

    def refuse_the_rest(self, *, unless_off: bool = False) -> None:
        """Refuse keys that were not read, because their meaning is not known.

        Those that are null, false, 0 or empty switch nothing on, and may be left ``unless_off``.
        """
        for name, value in self._values.items():
            if name not in self._seen and (_as_meant(value) or not unless_off):
                supported = "this key only when it is off" if unless_off else "no such key"
                raise UnsupportedValueError(self.key(name), value, supported)


def _as_meant(value: Any) -> Any:  # noqa: ANN401  # what YAML holds
    return None if value in ("None", "none") else value


def _as_yaml(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)
