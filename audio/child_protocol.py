"""What the pool and its children say to each other over a stream socket: no pickles, and no length is believed.

The pool sends one JSON object a file, with the file's descriptor beside it. The child answers with frames, each a
kind, a channel, a length and as many bytes: samples as often as it has some, then an origin or a refusal.
"""

import struct
from enum import Enum

HEADER = struct.Struct("<cBI")
MOST_BYTES_OF_REQUEST = 4096
MOST_BYTES_OF_FRAME = 16 << 20


class Kind(bytes, Enum):
    """Kinds of frames."""

    READY = b"r"  # empty: imports are done and limits are set
    SAMPLES = b"s"  # float32, of the channel
    ORIGIN = b"o"  # JSON of audio.decode.Origin: the file is done
    REFUSAL = b"e"  # JSON of the code and the message of an AudioError: the file is refused


def frame(kind: Kind, body: bytes | memoryview = b"", channel: int = 0) -> bytes:
    """Return one frame; only samples have a channel."""
    return HEADER.pack(kind.value, channel, len(body)) + body
