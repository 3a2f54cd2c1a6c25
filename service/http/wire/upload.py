"""Receiving a body within bounds of bytes and silence; a form must be complete, with a bounded number of parts."""

import asyncio
import math
from collections.abc import AsyncGenerator

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from service.dispatch.admission import Permit
from service.dispatch.errors import OverloadedError
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from transcripts.phrases import MOST_PHRASES

_MAX_FILES = 64
_MAX_FIELDS = 2 * MOST_PHRASES + 64  # the text and the weight of each phrase may be fields of their own
# Fields stay in memory, with the headers of all parts; a file goes to the disk.
_MAX_FIELD_BYTES = 1 << 18
_MAX_PREAMBLE_BYTES = 1 << 16
_FILE = "file"
_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"iso-8859-1")
_FULL_SECONDS = 60
# After its first seconds, a body must have come at 4 kbit/s. The slowest codec that is sent while somebody
# speaks, AMR at 4.75 kbit/s, has 594 bytes a second in its file.
_GRACE_SECONDS = 10
_LEAST_RATE = 500


def announced_bytes(headers: Headers, limit: int) -> int:
    """Return the Content-Length; 0 for chunked uploads.

    Raises:
        RequestError: if it is over the limit.
    """
    text = headers.get("content-length", "0")
    size = int(text) if text.isascii() and text.isdigit() else 0
    if size > limit:
        raise _too_large(limit)
    return size


class _FormParser(MultiPartParser):
    """starlette's parser with further checks.

    It refuses a body without its closing boundary, which starlette takes for a form without its last part, and fields
    that are too large together. It skips a preamble (RFC 2046, 5.1.1), and the content of files with other names.
    """

    def __init__(self, headers: Headers, boundary: bytes, pieces: AsyncGenerator[bytes, None]) -> None:
        super().__init__(
            headers,
            self._complete(pieces),
            max_files=_MAX_FILES,
            max_fields=_MAX_FIELDS,
            max_part_size=_MAX_FIELD_BYTES,
        )
        self._delimiter = b"--" + boundary
        self._preamble = b""
        self._has_begun = False
        self._is_complete = False
        self._has_file = False
        self._is_skipped = False
        self._field_bytes = 0

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        """Count bytes of a header's name."""
        self._count(end - start)
        super().on_header_field(data, start, end)

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        """Count bytes of a header's value."""
        self._count(end - start)
        super().on_header_value(data, start, end)

    def on_headers_finished(self) -> None:
        """Accept a single file of the expected name."""
        part = self._current_part
        part.content_disposition = _with_plain_name(part.content_disposition)
        super().on_headers_finished()
        part = self._current_part
        self._is_skipped = part.file is not None and part.field_name != _FILE
        if part.file is None:
            return
        if self._is_skipped:
            part.file.file.close()
        elif self._has_file:
            raise MultiPartException(f"Too many files; one named {_FILE!r} is taken.")
        else:
            self._has_file = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Store a piece of a part; in memory at once, for which starlette takes several steps."""
        if self._is_skipped:
            return
        file, size = self._current_part.file, end - start
        if file is None:
            self._count(size)
        elif file.size is not None and file.size + size <= self.spool_max_size and not self._file_parts_to_write:
            file.file.write(memoryview(data)[start:end])
            file.size += size
            return
        super().on_part_data(data, start, end)

    def on_part_end(self) -> None:
        """Store a part; a skipped file is empty."""
        if self._is_skipped and self._current_part.file:
            self.items.append((self._current_part.field_name, self._current_part.file))
        else:
            super().on_part_end()

    def on_end(self) -> None:
        """Record the closing boundary."""
        self._is_complete = True

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > _MAX_FIELD_BYTES:
            raise RequestError(
                f"The fields of the form are larger than the {_MAX_FIELD_BYTES} bytes that they may have together.",
                code=ErrorCode.FIELDS_TOO_LARGE,
            )

    async def _complete(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            if form := piece if self._has_begun else self._without_preamble(piece):
                yield form  # the parser has it when the next one is requested
        if not self._is_complete:
            raise MultiPartException("it ends before its closing boundary")

    def _without_preamble(self, piece: bytes) -> bytes:
        """Return what has come of the form from its first boundary on; nothing before that has come."""
        if not self._preamble:
            if piece.startswith(self._delimiter):
                self._has_begun = True
                return piece
            self._preamble = b"\r\n"  # a boundary is at the beginning of a line
        searched = max(0, len(self._preamble) - len(self._delimiter) - 2)
        self._preamble += piece
        begin = self._preamble.find(b"\r\n" + self._delimiter, searched)
        if begin >= 0:
            self._has_begun = True
            return self._preamble[begin + 2 :]
        if len(self._preamble) > _MAX_PREAMBLE_BYTES:
            raise MultiPartException("it has no boundary, or much before the first one")
        return b""


class Upload:
    """The body of one request, counted while it arrives.

    Attributes:
        limit: most bytes of the body.
        silence_seconds: longest wait for the next piece.
        total_seconds: longest time for the whole body, against clients that send byte by byte.
    """

    def __init__(
        self, receive: Receive, permit: Permit, *, limit: int, silence_seconds: float, total_seconds: float
    ) -> None:
        self._receive = receive
        self._permit = permit
        self.limit = limit
        self.silence_seconds = silence_seconds
        self.total_seconds = total_seconds
        self._ends = math.inf

    def count(self, piece: bytes) -> None:
        """Count bytes that have arrived.

        Raises:
            RequestError: if the body has too many bytes.
            OverloadedError: if all uploads together have too many.
        """
        self._permit.store(len(piece))
        if self._permit.stored_bytes > self.limit:
            raise _too_large(self.limit)

    async def whole(self, limit: int) -> bytes:
        """Receive a body of at most `limit` bytes; errors are those of `pieces`."""
        body = b""
        async for piece in self.pieces():
            body += piece
            if len(body) > limit:
                message = f"The body is larger than the {limit} bytes that it may have."
                raise RequestError(message, code=ErrorCode.FIELDS_TOO_LARGE)
        return body

    async def form(self, headers: Headers) -> FormData:
        """Receive and parse the form; file parts are spooled to disk above 1 MiB. The caller closes it.

        Raises:
            RequestError: for a body that is not a complete multipart form; otherwise as `pieces`.
        """
        _, params = parse_options_header(headers.get("content-type"))
        # Some of Python's charsets take time in the square of the length, or fail in odd ways.
        if params.get(b"charset", b"utf-8").lower() not in _CHARSETS:
            raise RequestError("The charset of the form is not UTF-8.", code=ErrorCode.MALFORMED_BODY)
        try:
            return await _FormParser(headers, params.get(b"boundary", b""), self.pieces()).parse()
        except (MultiPartException, HTTPException, UnicodeDecodeError) as error:
            message = getattr(error, "message", None) or str(error)
            raise RequestError(f"The form could not be read: {message}", code=ErrorCode.MALFORMED_BODY) from None
        except OSError as error:  # a full disk, or too many open files
            raise no_room(error) from error

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raises:
            RequestError: if it is too large or too slow.
            OverloadedError: if there is no room for it.
            ClientDisconnect: if the client left.
        """
        began = asyncio.get_running_loop().time()
        self._ends = began + self.total_seconds
        received = 0
        while True:
            falls_behind = began + max(_GRACE_SECONDS, received / _LEAST_RATE)
            message = await self._next(falls_behind)
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            received += len(piece)
            self.count(piece)
            yield piece
            if not message.get("more_body", False):
                return

    async def _next(self, falls_behind: float) -> Message:
        silence_ends = asyncio.get_running_loop().time() + self.silence_seconds
        try:
            async with asyncio.timeout_at(min(silence_ends, self._ends, falls_behind)):
                return await self._receive()
        except TimeoutError:
            total, silence = self.total_seconds, self.silence_seconds
            message = (
                f"The body must arrive within {total:g} s, never pause for {silence:g} s, and after {_GRACE_SECONDS} s "
                f"have come at {_LEAST_RATE} bytes a second or more."
            )
            raise RequestError(message, code=ErrorCode.REQUEST_TIMEOUT, param="file") from None


def _with_plain_name(disposition: bytes | None) -> bytes | None:
    """Return a Content-Disposition of which the parser sees that it is a file's.

    The parser leaves out `filename*`, which a form may not have (RFC 7578, 4.2), and would take the recording for text.
    """
    if disposition is None or b"filename*" not in disposition.lower():
        return disposition
    is_named = b"filename" in parse_options_header(disposition)[1]
    _, options = parse_options_header(disposition.lower().replace(b"filename*", b"filename"))
    return disposition if is_named or b"filename" not in options else disposition + b'; filename="recording"'


def no_room(error: OSError) -> OverloadedError:
    """Return the error of an upload that could not be stored."""
    return OverloadedError(f"The service has no room for this upload: {error.strerror}.", _FULL_SECONDS)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The body is larger than the {limit} bytes allowed (STENO_MAX_UPLOAD_BYTES).",
        code=ErrorCode.FILE_TOO_LARGE,
        param="file",
    )
