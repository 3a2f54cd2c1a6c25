"""Receives a multipart form within bounds: bytes, silence between them, number of parts, and a proper end."""

import asyncio
import math
from collections.abc import AsyncGenerator

from starlette.datastructures import FormData, Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from service.dispatch.admission import Permit
from service.http.errors import RequestError

_MAX_FIELDS = 64
_MAX_FIELD_BYTES = 1 << 20


def announced_bytes(headers: Headers, limit: int) -> int:
    """Return the Content-Length, 0 where there is none (chunked uploads).

    Raises:
        RequestError: If it is over the limit.
    """
    text = headers.get("content-length", "0")
    size = int(text) if text.isascii() and text.isdigit() else 0
    if size > limit:
        raise _too_large(limit)
    return size


class _FormParser(MultiPartParser):
    """Refuses a body without its closing boundary, which starlette takes for a form without its last part."""

    def __init__(self, headers: Headers, pieces: AsyncGenerator[bytes, None], **limits: int) -> None:
        super().__init__(headers, self._complete(pieces), **limits)
        self._is_complete = False

    def on_end(self) -> None:
        """Note the closing boundary."""
        self._is_complete = True

    async def _complete(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            yield piece  # it is parsed when the next one is asked for
        if not self._is_complete:
            raise MultiPartException("it ends before its closing boundary")


class Upload:
    """The body of one request, counted while it arrives.

    Args:
        receive: The ASGI channel.
        permit: Told of every byte.
        limit: Bytes the body may have.
        silence_seconds: Longest wait for the next piece.
        total_seconds: Longest time for the whole body: a client that drips must not hold its place for ever.
    """

    def __init__(
        self, receive: Receive, permit: Permit, *, limit: int, silence_seconds: float, total_seconds: float
    ) -> None:
        self._receive = receive
        self._permit = permit
        self._limit = limit
        self._silence_seconds = silence_seconds
        self._total_seconds = total_seconds
        self._ends = math.inf

    async def form(self, headers: Headers) -> FormData:
        """Receive and parse the form; file parts are spooled to disk above 1 MiB. The caller closes it.

        Raises:
            RequestError: For a body that is too large, too slow or not a complete multipart form.
            ClientDisconnect: If the client left.
        """
        if not headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise RequestError("The body must be multipart/form-data.", code="malformed_body")
        self._ends = asyncio.get_running_loop().time() + self._total_seconds
        parser = _FormParser(
            headers, self._pieces(), max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES
        )
        try:
            return await parser.parse()
        except (MultiPartException, HTTPException, UnicodeDecodeError) as error:
            message = getattr(error, "message", None) or str(error)
            raise RequestError(f"The form could not be read: {message}", code="malformed_body") from None

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            message = await self._next()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            self._permit.store(len(piece))
            if self._permit.stored_bytes > self._limit:
                raise _too_large(self._limit)
            yield piece
            if not message.get("more_body", False):
                return

    async def _next(self) -> Message:
        silence_ends = asyncio.get_running_loop().time() + self._silence_seconds
        try:
            async with asyncio.timeout_at(min(silence_ends, self._ends)):
                return await self._receive()
        except TimeoutError:
            total, silence = self._total_seconds, self._silence_seconds
            message = f"The body must arrive within {total:g} s, and never pause for {silence:g} s."
            raise RequestError(message, code="request_timeout", param="file", status=408) from None


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The body is larger than the {limit} bytes allowed (STENO_MAX_UPLOAD_BYTES).",
        code="file_too_large",
        param="file",
        status=413,
    )
