"""Looking at a pickle before torch loads it.

``torch.load(weights_only=True)`` runs no code, but it does build what it is told to. A tuple that holds the tuple
before it twice, thirty times over, fits into two hundred bytes, and to hash it, as a key of a dict must be, takes a
billion steps. ``torch.save`` never writes a tuple twice: what it refers back to are names, classes and tensors.
"""

import pickletools
from typing import IO

_MEMORIZES = ("BINPUT", "LONG_BINPUT", "PUT")
_REFERS_BACK = ("BINGET", "LONG_BINGET", "GET")
# What may be referred back to: the result of any of these, hashed in one step if at all.
_HASHED_AT_ONCE = ("BINUNICODE", "GLOBAL", "REDUCE", "BUILD", "EMPTY_LIST", "EMPTY_DICT")


def shares_tuples(stream: IO[bytes]) -> bool:
    """Tell whether anything but names, classes and tensors is in the next pickle of a stream twice.

    What is no pickle shares nothing: torch refuses it, and says why.
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
