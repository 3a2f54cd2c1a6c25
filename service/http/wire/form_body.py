"""Receiving a multipart form (RFC 7578) within bounds: all of it, and of its files the one named `file`."""

from tempfile import SpooledTemporaryFile

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.wire.upload import Upload, no_room
from transcripts.phrases import MOST_PHRASES

_MOST_PARTS = 2 * MOST_PHRASES + 128  # the text and the weight of each phrase may be fields of their own
# Fields stay in memory, with the headers of all parts; a file goes to the disk.
_MOST_FIELD_BYTES = 1 << 18
_MOST_PREAMBLE_BYTES = 1 << 16
_IN_MEMORY_BYTES = 1 << 20
_FILE = "file"
_CHARSETS = ("utf-8", "utf8", "us-ascii", "iso-8859-1")


def new_file(content_type: str) -> UploadFile:
    """Return a file for a recording, in memory until it is large."""
    spooled = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  # closed with the form
    return UploadFile(spooled, size=0, headers=Headers({"content-type": content_type}))  # type: ignore[arg-type]


async def read_form(upload: Upload, headers: Headers) -> FormData:
    """Receive and parse a form; its file is spooled to disk above 1 MiB. The caller closes it.

    Raises:
        RequestError: for a body that is not a complete multipart form; otherwise as `Upload.pieces`.
        OverloadedError: if there is no room for the file.
    """
    _, options = parse_options_header(headers.get("content-type", ""))
    # Some of Python's charsets take time in the square of the length, or fail in odd ways.
    if options.get("charset", "utf-8").lower() not in _CHARSETS:
        raise RequestError("The charset of the form is not UTF-8.", code=ErrorCode.MALFORMED_BODY)
    form = _Form()
    try:
        await _fill(form, options.get("boundary", ""), upload)
    except BaseException:
        await form.parts.close()
        raise
    return form.parts


async def _fill(form: "_Form", boundary: str, upload: Upload) -> None:
    try:
        # The name of a file may be in any charset, and is not used.
        with PushMultipartParser(boundary, max_segment_count=_MOST_PARTS, header_charset="latin-1") as parser:
            async for piece in upload.pieces():
                for event in parser.parse(piece) if piece else ():  # to the parser, an empty one is the end
                    if isinstance(event, MultipartSegment):
                        form.begin(event)
                    elif event is None:
                        await form.end()
                    else:
                        await form.add(event)
                form.count_preamble(len(piece))
    except MultipartError as error:
        raise RequestError(f"The form could not be read: {error}.", code=ErrorCode.MALFORMED_BODY) from None
    except OSError as error:  # a full disk, or too many open files
        raise no_room(error) from error


class _Form:
    """The parts of a form that have come. Errors are those of `read_form`, and OSError."""

    def __init__(self) -> None:
        self._items: list[tuple[str, str | UploadFile]] = []
        self._name = ""
        self._text = bytearray()
        self._file: UploadFile | None = None
        self._field_bytes = 0
        self._preamble_bytes: int | None = 0  # None: a part has begun

    @property
    def parts(self) -> FormData:
        """All parts, in order; files with other names than `file` are empty."""
        return FormData(self._items)

    def begin(self, part: MultipartSegment) -> None:
        """Begin a part."""
        self._preamble_bytes = None
        if not part.name:
            raise MultipartError("a part has no name")
        self._count(sum(len(name) + len(value) for name, value in part.headerlist))
        self._name, self._text, self._file = part.name, bytearray(), None
        if part.filename is None and not _has_encoded_name(part):
            return
        if part.name == _FILE and any(name == _FILE and isinstance(item, UploadFile) for name, item in self._items):
            raise MultipartError(f"it has several files; one named {_FILE!r} is taken")
        self._file = new_file(part.header("Content-Type", ""))
        self._items.append((part.name, self._file))

    def count_preamble(self, size: int) -> None:
        """Count bytes that have come, as long as no part has begun."""
        if self._preamble_bytes is not None:
            self._preamble_bytes += size
            if self._preamble_bytes > _MOST_PREAMBLE_BYTES:
                raise MultipartError("it has no boundary, or much before the first one")

    async def add(self, data: bytes) -> None:
        """Store bytes of the part."""
        if self._file is None:
            self._count(len(data))
            self._text += data
        elif self._name == _FILE:
            await self._file.write(data)

    async def end(self) -> None:
        """End the part."""
        if self._file is not None:
            await self._file.seek(0)
            return
        try:
            text = self._text.decode()
        except UnicodeDecodeError:  # of a terminal on Windows, for example
            text = self._text.decode("latin-1")
        self._items.append((self._name, text))

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > _MOST_FIELD_BYTES:
            raise RequestError(
                f"The fields of the form are larger than the {_MOST_FIELD_BYTES} bytes that they may have together.",
                code=ErrorCode.FIELDS_TOO_LARGE,
            )


def _has_encoded_name(part: MultipartSegment) -> bool:
    """Return whether a part is a file by `filename*` alone, which a form may not have (RFC 7578, 4.2), yet some do."""
    outside_quotes = part.header("Content-Disposition", "").split('"')[::2]
    return "filename*" in "".join(outside_quotes).lower()
