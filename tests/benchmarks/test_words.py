"""The benchmark of words measures times and confidence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.words import _times, at_borders, calibration, main, right_words, silences
from models import Transcript, Word

RATE = 16_000


def sound(*parts: tuple[float, float]) -> np.ndarray:
    """Stretches of noise, each with its seconds and decibels, one after the other."""
    random = np.random.default_rng(2)
    return np.concatenate(
        [random.normal(0, 10 ** (level / 20), round(seconds * RATE)) for seconds, level in parts]
    ).astype(np.float32)


def heard(*words: tuple[str, float, float]) -> Transcript:
    spans = [Word(text, start, end, 0.5, (n, n + 1)) for n, (text, start, end) in enumerate(words)]
    return Transcript(" ".join(word.text for word in spans), [], [0.5] * len(spans), spans)


CLIP = sound((0.4, -70), (1.0, -20), (0.1, -70), (0.6, -20), (0.5, -70), (1.0, -20), (0.3, -70))


def test_silences_are_found_and_short_ones_are_within_speech():
    found = silences(CLIP, RATE)

    assert np.array(found) == pytest.approx(np.array([(0, 0.4), (2.1, 2.6), (3.6, 3.9)]), abs=0.03)
    assert silences(sound((1.0, -40), (1.0, -20)), RATE) == []


def test_words_at_a_silence_are_compared_with_its_borders():
    errors = list(at_borders(CLIP, RATE, heard(("a", 0.45, 1.0), ("b", 1.2, 2.0), ("c", 2.65, 3.4))))

    assert [kind for kind, _ in errors] == ["start", "end", "start", "end"]
    assert [error for _, error in errors] == pytest.approx([0.05, -0.1, 0.05, -0.2], abs=0.03)


def test_a_word_is_right_where_the_reference_has_it():
    assert right_words("a b c d", heard(("a", 0, 1), ("x", 1, 2), ("C", 2, 3), ("d", 3, 4))) == [
        True,
        False,
        True,
        True,
    ]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_calibration_is_between_0_and_1(pairs):
    confidence, right = zip(*pairs, strict=True)

    error, auc = calibration(confidence, right)

    assert 0 <= error <= 1
    assert np.isnan(auc) or 0 <= auc <= 1


def test_confidence_that_is_right_has_no_error():
    assert calibration([0.9] * 10 + [0.1] * 10, [True] * 9 + [False] * 10 + [True]) == pytest.approx(
        (0.0, 0.8), abs=0.2
    )
    assert calibration([1.0, 1.0], [False, False])[0] == 1


def test_equal_confidences_tell_nothing():
    for right in ([True, False], [False, True], [True, False, False, True]):
        assert calibration([0.9] * len(right), right)[1] == 0.5


def test_without_a_word_at_a_silence_there_are_no_errors_of_times():
    assert _times(np.array([])) == {}


def test_a_split_without_clips_is_an_error(tmp_path, monkeypatch, capsys):
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"audio": "a.wav", "text": "a", "split": "dev"}\n')
    monkeypatch.setattr("sys.argv", ["words", str(manifest), "--split", "test"])

    with pytest.raises(SystemExit):
        main()

    assert f"no clip of {manifest} has this split" in capsys.readouterr().err
