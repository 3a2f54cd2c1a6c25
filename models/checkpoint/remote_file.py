"""A file on the hub that is read in pieces, so that little of it has to be downloaded."""

import io
from typing import Any

from huggingface_hub import get_session, hf_hub_url
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, but not re-exported

_PIECE_BYTES = 1 << 16
_PARTIAL = 206
_SECONDS = 10.0


class RemoteFile(io.RawIOBase):
    """Reads by range requests.

    Args:
        repository: owner and name.
        commit: the repository's commit.
        name: the file's name.
        size: its bytes.

    Attributes:
        failure: why the hub did not send a piece; what was read since is not the file.
    """

    def __init__(self, repository: str, commit: str, name: str, size: int) -> None:
        self._url = hf_hub_url(repository, name, revision=commit)
        self._size = size
        self._position = 0
        self.failure: Exception | None = None

    def buffered(self) -> io.BufferedReader:
        """Return a reader that asks for pieces of 64 KiB."""
        return io.BufferedReader(self, _PIECE_BYTES)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Move, without a request."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + position)
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # collections.abc.Buffer is of Python 3.12
        """Read the next bytes.

        Raises:
            OSError: if the hub does not send them; ``failure`` says why.
        """
        view = memoryview(buffer)
        end = min(self._position + len(view), self._size)
        if end <= self._position:
            return 0
        try:
            piece = self._piece(end)
        except Exception as error:  # clients and proxies report a missing network in many ways
            self.failure = error
            raise OSError(str(error)) from error
        view[: len(piece)] = piece
        self._position = end
        return len(piece)

    def _piece(self, end: int) -> bytes:
        asked = {"Range": f"bytes={self._position}-{end - 1}"}
        answer = get_session().get(self._url, headers=build_hf_headers() | asked, timeout=_SECONDS)
        answer.raise_for_status()
        if answer.status_code != _PARTIAL or len(answer.content) != end - self._position:
            raise OSError(f"the hub does not send pieces of files (status {answer.status_code})")
        return bytes(answer.content)
