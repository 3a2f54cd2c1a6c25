"""Long recordings of `benchmarks long` have their clips where they say, and disturbed as they say."""

import json

import numpy as np
import pytest

from benchmarks.long import RATE, VARIANTS, Variant, long_recording, main, print_table, ratio
from cli.references import Reference
from tests.conftest import GOLDEN, ROOT

CLIPS = [Reference(GOLDEN / "clips" / f"{name}.wav", name, "golden") for name in ("awb-4s", "slt-1s", "espeak-2s")]


def made(variant: Variant, seconds: float = 20.0, seed: int = 3):
    return long_recording(CLIPS, variant, seconds, seed)


@pytest.mark.parametrize("name", ["plain", "no-pauses", "silence"])
def test_a_recording_is_as_long_as_asked_and_its_edges_hold_all_that_is_not_silent(name):
    recording = made(VARIANTS[name])

    assert 20.0 <= recording.seconds < 20.0 + 6.5 + 60.0
    assert len(recording.edges) == len(recording.texts)
    outside = np.ones(len(recording.samples), bool)
    for start, stop in recording.edges:
        assert 0 <= start < stop <= len(recording.samples)
        outside[start:stop] = False
    assert not recording.samples[outside].any()
    assert sum(map(len, recording.at(RATE))) == (~outside).sum()


def test_the_edges_of_a_single_clip_hold_it_when_silence_is_added():
    recording = made(VARIANTS["silence"], seconds=0.5)

    ((start, stop),) = recording.edges
    assert np.abs(recording.samples[start:stop]).max() == np.abs(recording.samples).max() > 0


def test_the_seed_decides_order_pauses_and_noise():
    first, same, other = (made(VARIANTS["noise-10"], seed=seed).samples for seed in (3, 3, 4))

    assert np.array_equal(first, same)
    assert not np.array_equal(first[: len(other)], other[: len(first)])


def test_disturbances_are_as_strong_as_they_say():
    plain, quiet, clipped, slow = (made(VARIANTS[name]) for name in ("plain", "quiet", "clipped", "tempo-0.8"))
    telephone = made(VARIANTS["telephone"])

    spoken = np.concatenate([quiet.samples[slice(*edge)] for edge in quiet.edges])
    assert 10 * np.log10(np.square(spoken).mean()) == pytest.approx(-50, abs=0.1)
    assert np.abs(clipped.samples).max() == pytest.approx(1.0)
    assert (np.abs(clipped.samples) > 0.999).mean() > 10 * (np.abs(plain.samples) > 0.999).mean()
    assert telephone.rate == 8_000
    assert telephone.edges[-1][1] == pytest.approx(plain.edges[-1][1] / 2, abs=1)
    assert slow.texts[0] == plain.texts[0]
    assert slow.edges[0][1] > plain.edges[0][1]


def test_ratios_are_of_all_errors_by_model_and_length(capsys):
    rows = [
        {"model": model, "minutes": minutes, "variant": "plain", "joined_errors": joined, "cut_errors": 10, "words": 99}
        for model, minutes, joined in [("a", 1.0, 10), ("a", 1.0, 12), ("a", 10.0, 20), ("b", 1.0, 5)]
    ]

    print_table(rows)

    assert ratio(rows[:2]) == pytest.approx(1.1)
    told = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.startswith("mean")]
    assert told == ["1.100", "2.000", "0.500"]


@pytest.mark.slow
def test_kept_rows_are_of_one_manifest_and_models_of_equal_file_names_are_told_apart(monkeypatch, tmp_path, capsys):
    model = tmp_path / "bundled.nemo"
    model.symlink_to(ROOT / "models/bundled/steno-bundled.nemo")
    manifests = [tmp_path / "one.jsonl", tmp_path / "other.jsonl"]
    for manifest in manifests:
        manifest.write_text(json.dumps({"audio": str(CLIPS[0].audio), "text": "author of the danger trail"}) + "\n")
    options = ["--minutes", "0.05", "--variants", "plain", "--models", "bundled", str(model)]
    options += ["--rows", str(tmp_path / "rows.jsonl")]
    monkeypatch.setattr("sys.argv", ["long", str(manifests[0]), *options])

    main()

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("mean")]
    assert len(lines) == 2
    monkeypatch.setattr("sys.argv", ["long", str(manifests[1]), *options])
    with pytest.raises(ValueError, match="rows of another run"):
        main()
