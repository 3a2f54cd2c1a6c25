"""The three ways to send a recording: in a multipart form, as the body itself, or by a URL that JSON names."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import orjson
from starlette.datastructures import FormData, Headers, QueryParams, UploadFile

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, invalid, missing
from service.http.transcription.form import LISTS
from service.http.wire.form_body import new_file, read_form
from service.http.wire.upload import Upload, no_room

_MAX_JSON_BYTES = 1 << 18
_RECORDING_TYPES = ("audio/", "video/", "application/octet-stream", "application/ogg")
_COMPRESSIONS = ("gzip", "deflate", "br", "zstd")
_URL = "url"


async def receive(upload: Upload, headers: Headers, query: QueryParams) -> tuple[FormData, str | None]:
    """Receive a body of any of the three types; a recording that is the body itself has its options in the query.

    Returns:
        a form, to be closed, with the recording as `file`; and the URL from which to fetch that, if any.

    Raises:
        RequestError: for a body that is too large, too slow, incomplete, malformed, compressed or of another type.
        OverloadedError: if there is no room for it.
        ClientDisconnect: if the client left.
    """
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in _COMPRESSIONS:
        message = f"The body is compressed (Content-Encoding: {encoding}); send it as it is."
        raise RequestError(message, code=ErrorCode.MALFORMED_BODY)
    content_type = headers.get("content-type", "").strip()
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await read_form(upload, headers), None
    if kind == "application/json":
        return _of_json(await upload.whole(_MAX_JSON_BYTES))
    if not kind.startswith(_RECORDING_TYPES):
        raise RequestError(
            "The body must be multipart/form-data, a recording (Content-Type: audio/wav and the like, options in the "
            "query), or application/json with a 'url'.",
            code=ErrorCode.MALFORMED_BODY,
        )
    async with AsyncExitStack() as unless_received:
        file = new_file(content_type)
        unless_received.push_async_callback(file.close)
        form = _form(query.multi_items(), file)
        await fill(file, upload.pieces())
        unless_received.pop_all()
    return form, None


async def fill(file: UploadFile, pieces: AsyncGenerator[bytes, None]) -> None:
    """Write pieces to a file as they arrive, and seek back to its start.

    Raises:
        OverloadedError: if the disk is full.
    """
    async for piece in pieces:
        try:
            await file.write(piece)
        except OSError as error:
            raise no_room(error) from error
    await file.seek(0)


def _of_json(body: bytes) -> tuple[FormData, str]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The JSON could not be read: {error}.", code=ErrorCode.MALFORMED_BODY) from None
    if not isinstance(fields, dict):
        raise RequestError("The JSON must be an object.", code=ErrorCode.MALFORMED_BODY)
    url = fields.pop(_URL, None)
    if url is None:
        raise missing(_URL, "The JSON has no 'url'; a file is sent as multipart/form-data.")
    if not isinstance(url, str):
        raise invalid(_URL, "it must be a string")
    items = [
        (name, value if isinstance(value, str) else orjson.dumps(value).decode())  # form fields are text
        for name, given in fields.items()
        if given is not None  # as good as left out
        for value in (given if isinstance(given, list) and name.removesuffix("[]") in LISTS else [given])
    ]
    return _form(items, new_file("")), url


def _form(items: list[tuple[str, Any]], file: UploadFile) -> FormData:
    # The recording is last, because the last field of a name counts: no option can replace it.
    return FormData([*items, ("file", file)])
