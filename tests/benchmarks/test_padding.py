"""`benchmarks padding` goes on with its own rows, and not with those of other shares."""

import json

import pytest

from benchmarks import padding
from tests.conftest import GOLDEN


@pytest.mark.golden
def test_rows_of_other_shares_are_not_taken_for_these(tmp_path, monkeypatch, capsys):
    def measured(share):
        options = ["--batch", "2", "--seconds", "0.5", "--rounds", "1", "--rows", str(tmp_path / "rows.jsonl")]
        model = str(GOLDEN / "fastconformer-ctc-bpe" / "model.nemo")
        monkeypatch.setattr("sys.argv", ["padding", "--model", model, *options, "--shares", share])
        padding.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]

    rows = measured("0.5")

    assert [row["padding_share"] for row in rows] == [0.0, 0.5]
    assert measured("0.5") == rows
    with pytest.raises(ValueError, match="another run"):
        measured("0.25")
