"""Errors of checkpoints that cannot be loaded.

CheckpointError
├── MissingCheckpointError       there is no such file, and no such model on the hub
├── DownloadError                the hub refuses, or cannot be reached
├── UnreadableCheckpointError    damaged, cut short, or not a checkpoint
├── UnsafeCheckpointError        built to do more than describe a model: code, links, bombs
├── UnsupportedValueError        describes a model that is not supported, or contradicts itself
├── OtherPurposeError            a model that does not transcribe, such as a language identifier
└── TensorMismatchError          its tensors are not those of the model it describes

Every message is one line.
"""

from collections.abc import Sequence
from reprlib import Repr

_LONGEST_MESSAGE = 2000
_SHOWN_CHARACTERS = 120
_SHOWN_TENSORS = 6
_MOST_BITS = 1000


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded."""

    def __init__(self, message: str) -> None:
        """Keep the message on one line, without control characters that a checkpoint may have put into it."""
        line = " ".join(message.split())[:_LONGEST_MESSAGE]
        super().__init__("".join(character if character.isprintable() else "?" for character in line))


class MissingCheckpointError(CheckpointError):
    """There is no such file, and no such model on the hub."""


class DownloadError(CheckpointError):
    """The hub refuses the model, sends another one than it announced, or cannot be reached."""


class UnreadableCheckpointError(CheckpointError):
    """The file is damaged, cut short, or not a checkpoint at all."""


class UnsafeCheckpointError(CheckpointError):
    """The file holds something that no honest checkpoint holds, which was neither run nor written anywhere."""


class UnsupportedValueError(CheckpointError):
    """The configuration asks for something that would change the result and that Steno does not do.

    Attributes:
        key: the key, such as ``encoder.self_attention_model``.
        value: its value.
        supported: the values that are supported.
    """

    def __init__(self, key: str, value: object, supported: str) -> None:
        self.key = key
        self.value = value
        self.supported = supported
        super().__init__(f"{key} is {shown(value)}, which is not supported; supported: {supported}")


class OtherPurposeError(CheckpointError):
    """The model does not transcribe: it identifies languages, says who speaks, or is for another program."""


class TensorMismatchError(CheckpointError):
    """The tensors are not those of the model that the configuration describes.

    Attributes:
        problems: one for each tensor, with its name.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listed = "; ".join(problem for problem in problems[:_SHOWN_TENSORS])
        more = len(problems) - _SHOWN_TENSORS
        super().__init__("tensors do not fit: " + listed + (f"; and {more} more" if more > 0 else ""))


def shown(value: object) -> str:
    """Return a value from a checkpoint as short printable text, however large it is."""
    return "null" if value is None else _SHORT.repr(value)


class _Short(Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Return the digits, or the size of a number that Python refuses to write, as a long hexadecimal one."""
        return super().repr_int(x, level) if x.bit_length() < _MOST_BITS else f"a number of {x.bit_length()} bits"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = _SHOWN_CHARACTERS
