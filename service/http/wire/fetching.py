"""Fetching a recording from a client's URL, within the limits of an upload."""

import asyncio
from collections.abc import AsyncGenerator
from importlib.metadata import version
from urllib.parse import urljoin

import httpcore
from starlette.datastructures import Headers, UploadFile

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.wire.bodies import fill
from service.http.wire.upload import Upload, announced_bytes
from service.outbound import ForbiddenUrlError, Outbound, UnreachableError

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
_FOUND = 200
_HEADERS = {
    "user-agent": f"steno/{version('steno')}",
    "accept": "audio/*, video/*, */*;q=0.5",
    "accept-encoding": "identity",
}


async def fetch(outbound: Outbound | None, url: str, file: UploadFile, upload: Upload, client: str) -> None:
    """Fetch a recording into a file, with its media type; each redirect is checked like the URL.

    Args:
        outbound: makes requests to allowed hosts; None if the operator allows none.
        url: the URL.
        file: gets the content.
        upload: counts the bytes, and has the limits.
        client: who gave the URL: a key, or the network of an address without one.

    Raises:
        RequestError: if the URL is forbidden, cannot be reached, or its content exceeds the limits.
        OverloadedError: if there is no room for it.
    """
    if outbound is None:
        raise _forbidden("This service fetches no recordings: its operator allows no hosts (STENO_URL_HOSTS).")
    try:
        async with asyncio.timeout(upload.total_seconds):
            for _ in range(1 + _MAX_REDIRECTS):
                moved = await _fetch_once(outbound, url, file, upload, client)
                if moved is None:
                    return
                url = _joined(url, moved)
    except ForbiddenUrlError as error:
        raise _forbidden(str(error)) from None
    except UnreachableError as error:
        raise _unreachable(str(error)) from None
    except TimeoutError:
        raise _unreachable(f"It did not arrive within {upload.total_seconds:g} s.") from None
    raise _unreachable(f"It is redirected more than {_MAX_REDIRECTS} times.")


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise _unreachable("It redirects to something that is not a URL.") from None


async def _fetch_once(outbound: Outbound, url: str, file: UploadFile, upload: Upload, client: str) -> str | None:
    """Fetch a recording, or return where it is redirected to."""
    silence = upload.silence_seconds
    async with outbound.request("GET", url, headers=_HEADERS, silence_seconds=silence, client=client) as answer:
        headers = Headers(raw=[(name.lower(), value) for name, value in answer.headers])
        if answer.status in _REDIRECTS and (location := headers.get("location")):
            return location
        if answer.status != _FOUND:
            raise _unreachable(f"The server answered with status {answer.status}.")
        announced_bytes(headers, upload.limit)
        file.headers = Headers({"content-type": headers.get("content-type", "")})
        await fill(file, _counted(answer, upload))
    return None


async def _counted(answer: httpcore.Response, upload: Upload) -> AsyncGenerator[bytes, None]:
    async for piece in answer.aiter_stream():
        upload.count(piece)
        yield piece


def _forbidden(message: str) -> RequestError:
    return RequestError(f"url: {message}", code=ErrorCode.URL_NOT_ALLOWED, param="url")


def _unreachable(message: str) -> RequestError:
    return RequestError(f"url: {message}", code=ErrorCode.URL_UNREACHABLE, param="url")
