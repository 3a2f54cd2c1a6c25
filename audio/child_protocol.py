"""The protocol between the pool and its children over a stream socket: bounded structs, no pickles.

The pool sends, for each file, a request, and with it the file's descriptor. The child writes samples into the ring, a
piece of memory that both map, and answers with one message: which pieces of which channel are in the ring, one behind
the other, and what the file is. Where the ring is full before, it says what is in it, and waits for `GO_ON`.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum

from audio.errors import AudioError, AudioTooLongError, AudioTooShortError, InvalidAudioError, UnsupportedFormatError
from audio.limits import AudioLimits, check_form
from audio.origin import Origin, Wanted
from audio.sniff import SUPPORTED

RING_BYTES = 1 << 22  # 65 s at 16 kHz
MOST_PIECES = 1024
GO_ON = b"g"
_REQUEST = struct.Struct("<B?BIdd")
MOST_BYTES_OF_REQUEST = _REQUEST.size
HEADER = struct.Struct("<BHH")  # kind, number of pieces, bytes behind them
PIECE = struct.Struct("<BI")  # channel, samples
_ORIGIN = struct.Struct("<dII?BB")
_MOST_BYTES_OF_TEXT = 1000
MOST_BYTES_OF_MESSAGE = HEADER.size + MOST_PIECES * PIECE.size + 1 + _MOST_BYTES_OF_TEXT
# What a child may say of a file; the place is the code.
_REFUSALS: tuple[type[AudioError], ...] = (
    InvalidAudioError,
    UnsupportedFormatError,
    AudioTooShortError,
    AudioTooLongError,
)


class Kind(IntEnum):
    """Kinds of messages."""

    READY = 1  # the names of the layers that do not hold (audio.confinement)
    FULL = 2  # the ring is full
    DONE = 3  # an origin; the file is done
    REFUSED = 4  # the code and the text of an AudioError; pieces are none


def request(container: str, wanted: Wanted) -> bytes:
    """Return the request for a file of this container, one of `SUPPORTED`."""
    head = SUPPORTED.index(container), wanted.by_channel, wanted.track or 0, wanted.rate
    return _REQUEST.pack(*head, wanted.limits.max_seconds, wanted.limits.min_seconds)


def read_request(message: bytes) -> tuple[str, Wanted]:
    """Return the container, and what is wanted."""
    container, by_channel, track, rate, *limits = _REQUEST.unpack(message)
    return SUPPORTED[container], Wanted(rate, AudioLimits(*limits), by_channel, track or None)


def message(kind: Kind, pieces: Sequence[tuple[int, int]] = (), behind: bytes = b"") -> bytes:
    """Return one message; a piece is a channel and a number of samples."""
    packed = b"".join(PIECE.pack(*piece) for piece in pieces)
    return HEADER.pack(kind, len(pieces), len(behind)) + packed + behind


def read_message(message: bytes) -> tuple[Kind, list[tuple[int, int]], bytes]:
    """Return kind, pieces, and what is behind them; raise ValueError if it is no message."""
    kind, count, _ = HEADER.unpack_from(message)
    behind = HEADER.size + count * PIECE.size
    return Kind(kind), list(PIECE.iter_unpack(message[HEADER.size : behind])), message[behind:]


def length(message: bytes) -> int:
    """Return how long a message is, from its header at least; raise ValueError if it is longer than any."""
    _, count, behind = HEADER.unpack_from(message)
    if count > MOST_PIECES or behind > 1 + _MOST_BYTES_OF_TEXT:
        raise ValueError(f"{count} pieces, and {behind} bytes")
    return HEADER.size + int(count) * PIECE.size + int(behind)


def packed_origin(origin: Origin) -> bytes:
    """Return the bytes of what a file is, but its container, which the pool knows."""
    tracks = origin.track, min(origin.tracks, 255)
    return _ORIGIN.pack(origin.seconds, origin.channels, origin.source_rate, origin.truncated, *tracks)


def read_origin(packed: bytes, container: str, limits: AudioLimits) -> Origin:
    """Return what a file is.

    Raises:
        ValueError, struct.error: if it is not within the limits, as only a child says that was taken over.
    """
    seconds, channels, rate, is_truncated, track, tracks = _ORIGIN.unpack(packed)
    origin = Origin(seconds, container, channels, rate, is_truncated, track, tracks)
    if not (limits.min_seconds <= seconds <= limits.max_seconds and channels and rate and track <= tracks):
        raise ValueError(f"{origin}")
    check_form(channels, rate)
    return origin


def packed_refusal(error: AudioError) -> bytes:
    """Return the bytes of a refusal."""
    code = next(place for place, kind in enumerate(_REFUSALS) if isinstance(error, kind))
    text = "".join(character if character.isprintable() else "?" for character in str(error))
    return bytes([code]) + text.encode(errors="replace")[:_MOST_BYTES_OF_TEXT]


def read_refusal(packed: bytes) -> AudioError:
    """Return a refusal; raise ValueError or IndexError if it is none."""
    text = packed[1:].decode(errors="replace")
    if not text.isprintable():
        raise ValueError("a text that cannot be printed")
    return _REFUSALS[packed[0]](text)
