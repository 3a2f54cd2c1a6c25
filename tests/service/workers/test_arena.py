import os

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.descriptor import unnamed_file
from service.engine.protocol import Item
from service.engine.staging import StagingView
from service.workers.arena import Arena

LENGTHS = st.sampled_from([0, 1, 1023, 1024, 1025, 5000, 100_000, 3_000_000])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), LENGTHS, st.integers(0, 99)), max_size=40))
def test_samples_are_read_as_they_were_written_until_they_are_freed(steps):
    file = unnamed_file()
    try:
        arena, view = Arena(file), StagingView(file)
        held: list[tuple[int, int, float]] = []
        for number, (puts, length, which) in enumerate(steps):
            if puts:
                held.append((arena.put(np.full(length, number, np.float32)), length, number))
            elif held:
                arena.free(held.pop(which % len(held))[0])
            if which % 7 == 0:
                arena.return_free_memory()
            for offset, samples, value in held:
                read = view.read(Item(offset, samples))
                assert len(read) == samples
                assert read[:1].tolist() == read[-1:].tolist() == [value] * min(1, samples)
        for offset, _, _ in held:
            arena.free(offset)
        assert arena.is_empty
        assert len(arena._holes) <= 1  # all free space is one piece again
    finally:
        os.close(file)


def test_memory_of_free_space_goes_back_to_the_system():
    file = unnamed_file()
    try:
        arena = Arena(file)
        arena.free(arena.put(np.ones(8_000_000, np.float32)))
        assert os.fstat(file).st_blocks * 512 > 30_000_000

        arena.return_free_memory()

        assert os.fstat(file).st_blocks * 512 < 1_000_000
    finally:
        os.close(file)
