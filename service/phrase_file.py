"""The service's own list of phrases, in a file that is read again when it changes."""

import logging
from pathlib import Path

from transcripts.phrases import PhraseError, read_phrases

log = logging.getLogger("steno")


class PhraseFile:
    """Phrases that all requests have, besides their own: a file with one a line (transcripts/phrases.py).

    Raises:
        PhraseError: if the file cannot be read, or is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = self._now()
        self._lines = read_phrases(path)

    def lines(self) -> str:
        """Return the phrases as lines; a file that has become wrong is logged, and the last right one stays."""
        state = self._now()
        if state != self._state:
            self._state = state
            try:
                self._lines = read_phrases(self._path)
            except PhraseError as error:
                log.warning("the phrases stay as they were: %s", error)
        return self._lines

    def _now(self) -> object:
        """Return what changes with the file; None if there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_ino, status.st_mtime_ns, status.st_size)
