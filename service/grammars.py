"""Writing numbers in digits: the front's side of the child process with NeMo's grammars."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from audio.confinement import environment
from service.dispatch.errors import OverloadedError, TranscriptionFailedError
from service.threads import in_thread

PACKAGE = "nemo_text_processing"
# The package's languages that are written with spaces between words.
LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "hy", "mr", "pt", "ru", "sv", "vi")
MODULE = "service.grammar_process"

_ATTEMPTS = 2
_SECONDS = 600.0  # for an answer; the first one of a language may have to build its grammars


class Grammars:
    """Rewrites phrases in a child process, which starts with the first of them. Close it.

    Built grammars are kept in `steno/grammars` in the user's cache folder.
    """

    def __init__(self) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self._cache = str(Path(home) / "steno" / "grammars")
        self._threads = ThreadPoolExecutor(1, "grammars")
        self._process: subprocess.Popen[str] | None = None
        self._is_closed = False

    @property
    def are_installed(self) -> bool:
        """Whether the package is installed."""
        return find_spec(PACKAGE) is not None

    def write_any(self, languages: Sequence[str]) -> bool:
        """Return whether there are grammars for one of these languages, or for any if none are given."""
        return self.are_installed and (not languages or not set(languages).isdisjoint(LANGUAGES))

    async def write(self, phrases: Sequence[str], language: str) -> list[str]:
        """Return phrases (lower case, no punctuation) with their numbers in digits.

        Raises:
            TranscriptionFailedError: if the process dies or takes too long.
        """
        return await in_thread(self._threads, lambda: self._ask(phrases, language))

    def close(self) -> None:
        """End the process."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            _end(self._process)

    def _ask(self, phrases: Sequence[str], language: str) -> list[str]:
        """Ask the process; one that was killed meanwhile is not the fault of the text, so a new one is asked again."""
        for _ in range(_ATTEMPTS):
            process = self._running()
            began = time.monotonic()
            answer = _answer(process, json.dumps({"language": language, "phrases": list(phrases)}))
            if answer.endswith("\n"):
                written: list[str] = json.loads(answer)
                return written
            _end(process)
            self._process = None
            if self._is_closed or time.monotonic() - began >= _SECONDS:
                break
        raise TranscriptionFailedError("The grammars that write numbers failed on this text.")

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # nothing in the command comes from outside
                    [sys.executable, "-P", "-m", MODULE, self._cache],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment(os.environ),
                    text=True,
                    encoding="utf-8",
                )
            except OSError as error:  # no descriptor, no process, no memory
                raise OverloadedError(
                    f"The service can start no process for grammars now: {error.strerror}.", 60
                ) from error
        return self._process


def _answer(process: "subprocess.Popen[str]", question: str) -> str:
    """Return the next line of a process, which is killed if it takes too long; without its end if the process ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    too_long = threading.Timer(_SECONDS, process.kill)
    too_long.start()
    try:
        process.stdin.write(question + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    except OSError:
        return ""
    finally:
        too_long.cancel()


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    with contextlib.suppress(OSError), process:  # closes its pipes, one of which may hold unread output
        pass
