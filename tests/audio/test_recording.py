"""A decoded recording is read as it was written, in memory or not."""

import os
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.recording import Recording, StorageFullError


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=8), st.integers(0, 2000), st.integers(0, 2000), st.sampled_from([0, 5]))
def test_what_is_written_is_read_wherever_it_lies(sizes, start, length, seconds_in_memory):
    samples = np.random.default_rng(0).random(sum(sizes), np.float32)

    with Recording(rate=100, seconds_in_memory=seconds_in_memory) as recording:
        for block in np.split(samples, np.cumsum(sizes)):
            recording.append(block.tobytes())

        assert len(recording) == len(samples)
        assert recording.seconds == len(samples) / 100
        np.testing.assert_array_equal(recording.read(start, start + length), samples[start : start + length])


def test_a_short_recording_touches_no_disk_and_a_long_one_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))

    with Recording(rate=100, seconds_in_memory=1) as recording:
        recording.append(bytes(400))
        assert len(os.listdir("/proc/self/fd")) == before
        recording.append(bytes(4))
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert list(tmp_path.iterdir()) == []  # it has no name

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_is_an_error_of_its_own(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: open("/dev/full", "r+b", buffering))  # noqa: PTH123, SIM115

    with Recording(rate=100, seconds_in_memory=1) as recording, pytest.raises(StorageFullError, match="No space left"):
        recording.append(bytes(404))


def test_what_is_read_from_memory_is_not_copied_and_outlasts_the_recording():
    with Recording(rate=100, seconds_in_memory=1) as recording:
        recording.append(np.arange(100, dtype=np.float32).tobytes())
        first, second = recording.read(0, 50), recording.read(25, 100)
        assert np.shares_memory(first, second)
        assert not first.flags.writeable

    assert list(second) == list(range(25, 100))
