"""The protocol between the pool and its children over a stream socket: no pickles, and every length is checked.

For each file, the pool sends a JSON object, and with it the file's descriptor. The child answers in frames of kind,
channel, length and body: any number of frames of samples, then an origin or a refusal.
"""

import struct
from enum import Enum

HEADER = struct.Struct("<cBI")
MOST_BYTES_OF_REQUEST = 4096
MOST_BYTES_OF_FRAME = 16 << 20


class Kind(bytes, Enum):
    """Kinds of frames."""

    READY = b"r"  # empty; the child's imports are done and its limits are set
    SAMPLES = b"s"  # float32, of the channel
    ORIGIN = b"o"  # JSON of audio.decode.Origin; the file is done
    REFUSAL = b"e"  # JSON of the code and the message of an AudioError; the file is refused


def frame(kind: Kind, body: bytes | memoryview = b"", channel: int = 0) -> bytes:
    """Return one frame; only samples have a channel."""
    return HEADER.pack(kind.value, channel, len(body)) + body
