"""Batches of every size share a few sizes, none of them much larger."""

from hypothesis import given
from hypothesis import strategies as st

from models.graphs.sizes import frame_size, row_sizes


@given(st.integers(1, 10_000))
def test_every_number_of_rows_has_a_size_that_is_not_much_larger_and_is_warmed_up(rows):
    sizes = row_sizes(rows)

    assert sizes[0] >= rows > sizes[0] // (4 if rows <= 64 else 2)
    assert all(row_sizes(fewer)[0] in sizes for fewer in (1, max(1, rows // 2), max(1, rows // 10)))


def test_257_rows_do_not_run_in_the_size_of_1024():
    assert row_sizes(257) == [512, 256, 128, 64, 16, 4, 1]


@given(st.integers(1, 100_000))
def test_every_number_of_frames_has_a_size_that_is_at_most_half_as_much_more(frames):
    size = frame_size(frames)

    assert frames <= size
    assert size == 64 or size <= 1.5 * frames
    assert frame_size(size) == size


def test_recordings_of_all_lengths_up_to_a_minute_share_eight_sizes():
    assert sorted({frame_size(frames) for frames in range(1, 751)}) == [64, 96, 128, 192, 256, 384, 512, 768]
