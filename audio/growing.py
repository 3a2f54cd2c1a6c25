"""A recording whose file is still arriving: decoded again and again from its start, each time as far as it goes.

Decoding from the start needs no decoder that waits for bytes, so a slow client holds neither a thread nor a process.
"""

import zlib
from collections import deque

from audio.recording import Recording

# The end of a file that is cut off may decode to other samples than the whole file has there: its last frames, and the
# resampler's last block, which empties its filter. Of two channels that cancel out, the louder is chosen for each
# block, and the block before the resampler's last is incomplete.
_HELD_SECONDS = 2
_HELD_BLOCKS = 2
_SAMPLE_BYTES = 4


class BeginningChangedError(Exception):
    """The file has other samples at its beginning than it had when less of it had arrived."""


class GrowingRecording:
    """Adds to a recording what each decoding of its file has more than the one before.

    Args:
        recording: the recording; nothing else adds samples to it.

    Attributes:
        recording: the recording.
        checksum: of its samples so far.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.checksum = 0

    def append(self, samples: memoryview) -> None:
        """Add the bytes of samples.

        Raises:
            StorageFullError: if they cannot be stored.
        """
        self.recording.append(samples)
        self.checksum = zlib.crc32(samples, self.checksum)


class Decoding:
    """Gets the blocks of one decoding of the file, from its start; an ``audio.decode.Sink``.

    Args:
        growing: gets what is new.
        is_whole: whether all of the file has arrived; of one that has not, the end is held back.
    """

    def __init__(self, growing: GrowingRecording, *, is_whole: bool) -> None:
        self._growing = growing
        self._is_whole = is_whole
        self._least_held = _HELD_SECONDS * growing.recording.rate * _SAMPLE_BYTES
        self._held: deque[memoryview] = deque()
        self._held_bytes = 0
        self._known = len(growing.recording) * _SAMPLE_BYTES  # bytes that must be the same again
        self._checksum = 0

    def __call__(self, samples: bytes | memoryview, _channel: int = 0) -> None:
        """Add the next block.

        Raises:
            BeginningChangedError: if samples are not what they were.
            StorageFullError: if new samples cannot be stored.
        """
        if self._is_whole:
            self._pass_on(memoryview(samples))
            return
        self._held.append(memoryview(bytes(samples)))
        self._held_bytes += len(samples)
        while len(self._held) > _HELD_BLOCKS and self._held_bytes - len(self._held[0]) >= self._least_held:
            block = self._held.popleft()
            self._held_bytes -= len(block)
            self._pass_on(block)

    def finish(self, channels: int) -> None:
        """Check a whole file at its end; of one that has not arrived, hold back no more than needed.

        Args:
            channels: channels of the file.

        Raises:
            BeginningChangedError: if a whole file has fewer samples than it had before.
        """
        if self._is_whole and self._known:
            raise BeginningChangedError
        while channels == 1 and self._held_bytes > self._least_held:
            block = self._held.popleft()
            final = min(len(block), self._held_bytes - self._least_held)
            self._pass_on(block[:final])
            self._held_bytes -= len(block)

    def _pass_on(self, samples: memoryview) -> None:
        if self._known:
            again, samples = samples[: self._known], samples[self._known :]
            self._known -= len(again)
            self._checksum = zlib.crc32(again, self._checksum)
            if not self._known and self._checksum != self._growing.checksum:
                raise BeginningChangedError
        if samples:
            self._growing.append(samples)
