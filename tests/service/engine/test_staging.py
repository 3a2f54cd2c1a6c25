import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.descriptor import unnamed_file
from service.engine.staging import Staging, StagingView


@pytest.fixture
def memory():
    descriptor = unnamed_file()
    yield descriptor
    os.close(descriptor)


@given(st.lists(st.integers(0, 50), max_size=8))
def test_the_engine_reads_what_the_front_wrote(lengths):
    descriptor = unnamed_file()
    utterances = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in lengths]

    items = Staging(descriptor, slots=2, slot_samples=400).write(1, utterances)

    view = StagingView(descriptor)
    for item, samples in zip(items, utterances, strict=True):
        np.testing.assert_array_equal(view.read(item), samples)
    os.close(descriptor)


def test_batches_do_not_overwrite_each_other_until_freed(memory):
    staging, view = Staging(memory, slots=2, slot_samples=4), StagingView(memory)
    (first,) = staging.write(1, [np.full(4, 1, np.float32)])
    (second,) = staging.write(2, [np.full(4, 2, np.float32)])
    assert view.read(first)[0] == 1
    assert view.read(second)[0] == 2

    staging.free(1)
    (third,) = staging.write(3, [np.full(4, 3, np.float32)])

    assert view.read(third)[0] == 3
    assert view.read(second)[0] == 2


def test_a_batch_without_room_is_an_error_of_the_front(memory):
    staging = Staging(memory, slots=1, slot_samples=4)

    with pytest.raises(ValueError, match="room"):
        staging.write(1, [np.zeros(5, np.float32)])
    staging.write(1, [np.zeros(4, np.float32)])
    with pytest.raises(ValueError, match="room"):
        staging.write(2, [np.zeros(1, np.float32)])


def test_a_batch_that_cannot_be_copied_leaves_its_slot_free(memory):
    staging = Staging(memory, slots=1, slot_samples=4)

    with pytest.raises(ValueError, match="broadcast"):
        staging.write(1, [np.zeros(2, np.float32), np.zeros((2, 3), np.float32)])

    staging.write(2, [np.zeros(4, np.float32)])


def test_the_engine_cannot_write_to_the_fronts_audio(memory):
    (item,) = Staging(memory, slots=1, slot_samples=4).write(1, [np.zeros(4, np.float32)])

    with pytest.raises(ValueError, match="read-only"):
        StagingView(memory).read(item)[0] = 1


def test_a_batch_that_is_held_survives_growth_and_its_slot_does_not_come_back(memory):
    staging, view = Staging(memory, slots=2, slot_samples=4), StagingView(memory)
    (small,) = staging.write(1, [np.full(4, 1, np.float32)])
    assert view.read(small)[0] == 1

    staging.grow(3)
    staging.grow(8)
    (large,) = staging.write(2, [np.full(8, 2, np.float32)])
    (another,) = staging.write(3, [np.full(8, 3, np.float32)])

    assert [view.read(item)[-1] for item in (small, large, another)] == [1, 2, 3]
    staging.free(1)
    with pytest.raises(ValueError, match="room"):
        staging.write(4, [np.zeros(1, np.float32)])
    staging.free(2)
    staging.write(5, [np.zeros(8, np.float32)])
