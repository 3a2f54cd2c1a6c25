"""`benchmarks search` and `benchmarks.peers` go on with their own rows, and not with those of other options."""

import pytest

import benchmarks.peers.__main__ as peers
from benchmarks import search


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options", "other"),
    [
        (search, ["--transducer", "tdt", "--rounds", "1"], ["--windows", "3"]),
        (peers, ["--engines", "steno", "--dtypes", "float32", "--rounds", "1"], ["--transducer", "rnnt"]),
    ],
    ids=("search", "peers"),
)
def test_rows_of_other_options_are_not_taken_for_these(program, options, other, tmp_path, monkeypatch):
    def measure(*more):
        shared = ["--shape", "toy", "--batch", "1", "--seconds", "0.5", "--rows", str(tmp_path / "rows.jsonl")]
        monkeypatch.setattr("sys.argv", [program.__name__, *shared, *options, *more])
        program.main()

    measure()
    with pytest.raises(ValueError, match="another run"):
        measure(*other)
