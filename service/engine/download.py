"""Reports of an engine while it downloads a checkpoint: to the log now and then, to the front more often."""

import logging
import time
from collections.abc import Callable

from service.engine.protocol import Barred, Downloading, Trying

log = logging.getLogger("steno.engine")

_REPORT_SECONDS = 1.0
_LOG_SECONDS = 10.0


class DownloadReport:
    """Reports the progress of a download, at bounded rates."""

    def __init__(
        self,
        model: str,
        send: Callable[[Downloading | Trying | Barred], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self.send = send
        self._clock = clock
        self._reported = self._logged = float("-inf")

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        """Report bytes that arrived, if a report is due; the end of a file is always reported."""
        now, is_last = self._clock(), done_bytes == total_bytes
        if is_last or now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self.send(Downloading())
        if is_last or now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.info("downloading", extra={"model": self._model, "bytes": done_bytes, "of_bytes": total_bytes})
