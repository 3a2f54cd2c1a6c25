import mmap
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.shared_audio import Arena, ArenaView, Item, shared_file

LENGTHS = st.lists(st.sampled_from([0, 1, 1023, 1024, 1025, 5000, 100_000, 3_000_000]), min_size=1, max_size=3)


@pytest.fixture
def file():
    descriptor = shared_file()
    yield descriptor
    os.close(descriptor)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), LENGTHS, st.integers(0, 99)), max_size=40))
def test_samples_are_read_as_they_were_written_until_they_are_freed(steps):
    file = shared_file()
    try:
        arena, view = Arena(file), ArenaView(file)
        held: list[tuple[list[Item], float]] = []
        for number, (puts, lengths, which) in enumerate(steps):
            if puts:
                items = arena.reserve(lengths)
                arena.write(items, [np.full(length, number, np.float32) for length in lengths])
                held.append((items, number))
            elif held:
                arena.free(held.pop(which % len(held))[0][0].offset)
            if which % 7 == 0:
                arena.return_free_memory()
            for items, value in held:
                for item in items:
                    read = view.read(item)
                    assert len(read) == item.samples
                    assert read[:1].tolist() == read[-1:].tolist() == [value] * min(1, item.samples)
        for items, _ in held:
            arena.free(items[0].offset)
        assert arena.is_empty
        size = os.fstat(file).st_size // 4
        assert arena.reserve([size])[0].offset == 0  # all free space is one piece again
    finally:
        os.close(file)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6_000_000), st.booleans()), max_size=60))
def test_two_batches_at_a_time_take_the_memory_of_three_at_most(steps):
    """What slots of a fixed size bounded by their number: an engine holds two batches, of any lengths."""
    file = shared_file()
    try:
        arena, held = Arena(file), []
        for length, first in steps:
            if len(held) == 2:
                arena.free(held.pop(0 if first else 1))
            held.append(arena.reserve([length])[0].offset)
        assert os.fstat(file).st_size <= 4 * (3 * 6_000_000 + 3 * mmap.PAGESIZE) * 5 // 4 + (16 << 20)
    finally:
        os.close(file)


def test_memory_of_free_space_goes_back_to_the_system(file):
    arena = Arena(file)
    arena.free(arena.put(np.ones(8_000_000, np.float32)).offset)
    assert os.fstat(file).st_blocks * 512 > 30_000_000

    arena.return_free_memory()

    assert os.fstat(file).st_blocks * 512 < 1_000_000


def test_the_side_that_reads_can_neither_write_nor_shrink_nor_look_beyond_the_end(file):
    item = Arena(file).put(np.zeros(4, np.float32))
    view = ArenaView(file)

    with pytest.raises(ValueError, match="read-only"):
        view.read(item)[0] = 1
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(file, 0)
    with pytest.raises(ValueError, match="not in the memory"):
        view.read(Item(0, 1 << 40))


def test_an_arena_that_is_closed_does_not_grow_a_file_that_got_its_descriptor(tmp_path):
    descriptor = shared_file()
    arena = Arena(descriptor)
    with (tmp_path / "other").open("wb") as other:
        arena.close()
        os.dup2(other.fileno(), descriptor)
        try:
            with pytest.raises(OSError, match="Bad file descriptor"):
                arena.put(np.zeros(4, np.float32))
        finally:
            os.close(descriptor)
    assert not (tmp_path / "other").stat().st_size


def test_an_arena_that_is_closed_keeps_no_file_open_while_something_refers_to_it():
    before = len(os.listdir("/proc/self/fd"))
    arena = Arena(shared_file())
    arena.put(np.ones(5, np.float32))

    arena.close()

    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        arena.put(np.ones(5, np.float32))
