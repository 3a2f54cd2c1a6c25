"""The descriptor of any file object reads the file from its start."""

import io
import os
import tempfile
from functools import partial

import pytest

from audio.descriptor import Copies, descriptor_of

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 3 * MIB])
@pytest.mark.parametrize("make", [io.BytesIO, tempfile.TemporaryFile, partial(tempfile.SpooledTemporaryFile, MIB)])
def test_a_descriptor_reads_the_file_from_its_start(make, size):
    content = os.urandom(size)
    before = len(os.listdir("/proc/self/fd"))

    with make() as file:
        file.write(content)
        with descriptor_of(file) as descriptor, open(descriptor, "rb", closefd=False) as reader:
            assert reader.read() == content

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_on_disk_is_not_copied():
    with tempfile.TemporaryFile() as file:
        file.write(bytes(2 * MIB))

        with descriptor_of(file) as descriptor:
            assert descriptor == file.fileno()


def test_copies_come_one_after_another_whole_and_are_only_read_by_others():
    copies = Copies()
    with tempfile.SpooledTemporaryFile() as spooled, tempfile.TemporaryFile() as on_disk:
        for size in (100, 5000, 0, 70):
            content = os.urandom(size)
            spooled.seek(0)
            spooled.truncate()
            spooled.write(content)
            assert copies.take(spooled)
            assert os.pread(copies.reading, 10_000, 0) == content
            assert copies.take(io.BytesIO(content[::-1]))
            assert os.pread(copies.reading, 10_000, 0) == content[::-1]
        assert not copies.take(on_disk)
    assert not copies.take(io.BytesIO(bytes((1 << 20) + 1)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(copies.reading, b"x")
    copies.close()
