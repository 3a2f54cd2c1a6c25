"""A row has every node of its clips once, and each knows its frame, its labels and its place."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.losses.packed_clips import PackedClips, rows_of

SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 40), st.integers(0, 3))
def test_a_row_is_all_nodes_of_its_clips_clip_by_clip_and_frame_by_frame(sizes, most, padding):
    longest, labels = (max(each) for each in zip(*sizes, strict=True))
    tokens = torch.arange(len(sizes) * (labels + 1)).view(len(sizes), -1)
    row = PackedClips(sizes, tokens, longest + padding)

    found = [
        torch.stack((nodes.frame, nodes.prediction, nodes.next_label, nodes.lattice_index), dim=1).tolist()
        for nodes in map(row.nodes, row.parts(most))
    ]

    _, diagonals, width = row.lattice
    assert diagonals == longest + labels + 1
    assert all(len(part) == most for part in found[:-1])
    assert [node for part in found for node in part] == [
        [
            clip * (longest + padding) + frame,
            clip * width + emitted,
            tokens[clip, emitted],
            (clip * diagonals + frame + emitted) * width + emitted,
        ]
        for clip, (frames, of_clip) in enumerate(sizes)
        for frame in range(frames)
        for emitted in range(of_clip + 1)
    ]


@given(SIZES, st.integers(1, 40), st.integers(0, 2))
def test_a_part_knows_which_nodes_belong_to_which_frame_and_prediction(sizes, most, padding):
    longest, labels = (max(each) for each in zip(*sizes, strict=True))
    row = PackedClips(sizes, torch.zeros(len(sizes), labels + 1, dtype=torch.int64), longest + padding)

    for part in row.parts(most):
        nodes = row.nodes(part)
        for owner, sums in ((nodes.frame, row.of_frames(part)), (nodes.prediction, row.of_predictions(part))):
            expected = {place: (owner == place).nonzero()[:, 0].tolist() for place in set(owner.tolist())}
            found = {
                place: list(range(first, first + count * step, step))
                for place, first, step, count in zip(
                    *(each.tolist() for each in (sums.row, sums.first, sums.step, sums.count)), strict=True
                )
            }
            assert {place: of_place for place, of_place in found.items() if of_place} == expected
            assert len(found) == len(sums.row)


@given(SIZES, st.integers(1, 40))
def test_rows_hold_what_they_may_and_every_clip_once(sizes, most):
    rows = [range(clips.start, clips.stop) for clips in rows_of(sizes, most)]

    assert [clip for row in rows for clip in row] == list(range(len(sizes)))
    for row in rows:
        of_row = [sizes[clip] for clip in row]
        longest, widest = (max(each) for each in zip(*of_row, strict=True))
        nodes = sum(frames * (labels + 1) for frames, labels in of_row)
        places = len(row) * (longest + widest + 1) * (widest + 1)
        assert len(row) == 1 or (nodes <= most and places <= 4 * most)
