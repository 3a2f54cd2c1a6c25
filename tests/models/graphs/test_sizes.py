"""Batches of every size share a few sizes, none of them much larger."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.graphs.arena import Layout
from models.graphs.sizes import Sizes, frame_size, graph_rows, row_sizes

CPU = torch.device("cpu")


@given(st.integers(1, 10_000))
def test_every_number_of_rows_has_a_size_that_is_not_much_larger_and_is_warmed_up(rows):
    sizes = row_sizes(rows)

    assert sizes[0] >= rows > sizes[0] // (4 if rows <= 64 else 2)
    assert all(row_sizes(fewer)[0] in sizes for fewer in (1, max(1, rows // 2), max(1, rows // 10)))


@given(st.integers(1, 100_000))
def test_every_number_of_frames_has_a_size_that_is_at_most_half_as_much_more(frames):
    size = frame_size(frames)

    assert frames <= size
    assert size == 64 or size <= 1.5 * frames
    assert frame_size(size) == size


def test_recordings_of_all_lengths_up_to_a_minute_share_eight_sizes():
    assert sorted({frame_size(frames) for frames in range(1, 751)}) == [64, 96, 128, 192, 256, 384, 512, 768]


@given(st.integers(1, 1000))
def test_graphs_of_an_encoder_pad_by_at_most_half_and_the_largest_batch_has_its_own(most):
    sizes = graph_rows(most)

    assert sizes[0] == most
    assert sizes == sorted(set(sizes), reverse=True)
    for rows in range(1, most + 1):
        assert min(size for size in sizes if size >= rows) <= 1.5 * rows


def test_a_size_without_room_is_counted_until_it_has_some(caplog):
    free = 100 * 2**20
    sizes = Sizes(CPU, lambda _: free)
    least, more = ([Layout((mebibytes * 2**20,), torch.uint8)] for mebibytes in (12, 13))

    assert [sizes.has_room((rows,), state) for rows, state in enumerate((least, more, more))] == [True, False, False]
    assert sizes.counted()["no_room"] == 2
    assert len(caplog.records) == 1

    free *= 2
    assert sizes.has_room((1,), more)
    assert sizes.counted()["no_room"] == 1


def test_the_device_is_not_asked_for_room_for_a_size_that_was_refused():
    asked = []
    sizes = Sizes(CPU, lambda device: asked.append(device) or 0)
    sizes.get((1,), Failing(*[NO_CAPTURE] * 2))

    assert not sizes.has_room((1,), [Layout((1,), torch.uint8)])

    assert not asked
    assert sizes.counted() == {"captured": 0, "refused": 1, "no_room": 0}


def test_sizes_that_are_dropped_leave_nothing():
    sizes = Sizes(CPU, lambda _: 2**20)
    sizes.get((1,), lambda: sizes.arena.tensors([Layout((2**20,), torch.uint8)]))
    sizes.get((2,), Failing(*[NO_CAPTURE] * 2))
    assert not sizes.has_room((3,), [Layout((2**21,), torch.uint8)])

    sizes.clear()

    assert sizes.counted() == {"captured": 0, "refused": 0, "no_room": 0}
    assert sizes.arena.bytes == 0
    assert sizes.get((2,), Failing()) == "prepared"


class Failing:
    """Preparing fails `times` times, then succeeds."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "prepared"


NO_CAPTURE = RuntimeError("CUDA error: operation not permitted when stream is capturing")


def test_a_capture_that_was_spoiled_once_is_tried_again():
    sizes = Sizes(CPU)

    assert sizes.get((1,), Failing(NO_CAPTURE)) == "prepared"
    assert sizes.counted() == {"captured": 1, "refused": 0, "no_room": 0}


def test_what_cannot_be_captured_is_switched_off_for_that_size_alone(caplog):
    sizes, never = Sizes(CPU), Failing(*[NO_CAPTURE] * 10)

    assert sizes.get((1,), never) is None
    assert sizes.get((1,), never) is None
    assert never.calls == 2
    assert sizes.get((2,), Failing()) == "prepared"
    assert sizes.get((3,), Failing(*[NO_CAPTURE] * 2)) is None
    assert sizes.counted() == {"captured": 1, "refused": 2, "no_room": 0}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: an illegal memory access"), torch.OutOfMemoryError("no")])
def test_other_errors_are_raised_and_switch_nothing_off(error):
    sizes = Sizes(CPU)

    with pytest.raises(type(error)):
        sizes.get((1,), Failing(error))
    assert sizes.get((1,), Failing()) == "prepared"
