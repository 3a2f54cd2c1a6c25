"""Receives a multipart form within bounds: bytes, silence between them, number of parts, and a proper end."""

import asyncio
import math
import re
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
_BOUNDARY = re.compile(r'boundary="?([^";,]{1,256})"?', re.IGNORECASE)


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
        self._tail = b""

    async def form(self, headers: Headers) -> FormData:
        """Receive and parse the form; file parts are spooled to disk above 1 MiB. The caller closes it.

        Raises:
            RequestError: For a body that is too large, too slow or not a complete multipart form.
            ClientDisconnect: If the client left.
        """
        boundary = _BOUNDARY.search(headers.get("content-type", ""))
        if not headers.get("content-type", "").lower().startswith("multipart/form-data") or boundary is None:
            raise RequestError("The body must be multipart/form-data with a boundary.", code="malformed_body")
        self._ends = asyncio.get_running_loop().time() + self._total_seconds
        parser = MultiPartParser(
            headers, self._pieces(), max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES
        )
        try:
            form = await parser.parse()
        except (MultiPartException, HTTPException, UnicodeDecodeError) as error:
            message = getattr(error, "message", None) or str(error)
            raise RequestError(f"The form could not be read: {message}", code="malformed_body") from None
        # The parser takes a body without its closing boundary for a form without its last part.
        if b"--" + boundary[1].encode("latin-1") + b"--" not in self._tail:
            await form.close()
            raise RequestError("The body ends before its closing boundary.", code="malformed_body")
        return form

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            message = await self._next()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            self._permit.store(len(piece))
            if self._permit.stored_bytes > self._limit:
                raise _too_large(self._limit)
            self._tail = (self._tail + piece)[-512:]
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
