"""The batches that kernels are measured with."""

import pytest
import torch

from benchmarks.kernels import _padding, main


@pytest.mark.parametrize(("batch", "lengths"), [(1, [100]), (3, [100, 75, 50])])
def test_the_longest_clip_has_all_frames_also_alone(batch, lengths):
    padding = _padding(batch, 8.0, torch.device("cpu"))

    assert (padding.lengths.tolist(), padding.time) == (lengths, 100)


def test_rows_of_few_rounds_are_not_continued_with_more(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    options = ["kernels", "--batch", "-1", "--rows", str(tmp_path / "rows.jsonl"), "--rounds"]
    for rounds, why in (("1", "negative"), ("20", "rows of another run")):
        monkeypatch.setattr("sys.argv", [*options, rounds])
        with pytest.raises((RuntimeError, ValueError), match=why):
            main()
