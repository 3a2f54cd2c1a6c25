"""Receiving a body within bounds of bytes and silence."""

import asyncio
import math
from collections.abc import AsyncGenerator

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from service.dispatch.admission import Permit
from service.dispatch.errors import OverloadedError
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError

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


def no_room(error: OSError) -> OverloadedError:
    """Return the error of an upload that could not be stored."""
    return OverloadedError(f"The service has no room for this upload: {error.strerror}.", _FULL_SECONDS)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The body is larger than the {limit} bytes allowed (STENO_MAX_UPLOAD_BYTES).",
        code=ErrorCode.FILE_TOO_LARGE,
        param="file",
    )
