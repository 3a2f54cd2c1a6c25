"""Checking a pickle before torch loads it.

``torch.load(weights_only=True)`` runs no code, but it builds whatever objects the pickle describes. Thirty nested
tuples, each of which holds the one before twice, fit into two hundred bytes, and hashing the last as a key of a dict
takes a billion steps. ``torch.save`` never refers back to a tuple, only to names, classes and tensors.
"""

import pickletools
from typing import IO

_MEMORIZES = ("BINPUT", "LONG_BINPUT", "PUT")
_REFERS_BACK = ("BINGET", "LONG_BINGET", "GET")
# Results of these opcodes may be referred back to, because they are hashed in one step if at all.
_HASHED_AT_ONCE = ("BINUNICODE", "GLOBAL", "REDUCE", "BUILD", "EMPTY_LIST", "EMPTY_DICT")


def shares_tuples(stream: IO[bytes]) -> bool:
    """Return whether the next pickle of a stream refers back to anything but names, classes and tensors.

    False for data that is no pickle: torch refuses it, and says why.
    """
    memory: dict[object, bool] = {}
    before = ""
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name in _MEMORIZES:
                memory[argument] = before in _HASHED_AT_ONCE
            elif opcode.name in _REFERS_BACK and not memory.get(argument, False):
                return True
            before = opcode.name
    except ValueError:
        pass
    return False
