"""Word errors are counted after normalising both sides, and scores add up."""

import pytest

from cli.scoring import Score, Scorer


@pytest.mark.parametrize(
    ("reference", "transcript", "errors", "words"),
    [
        ("the cat sat", "the cat sat", 0, 3),
        ("the cat sat", "The cat, sat!", 0, 3),
        ("twenty one colours", "21 colors", 0, 2),
        ("the cat sat", "the hat sat down", 2, 3),
        ("the cat sat", "", 3, 3),
        ("", "hello there", 2, 0),
        ("", "", 0, 0),
    ],
)
def test_substitutions_deletions_and_insertions_count(reference, transcript, errors, words):
    assert Scorer().score(reference, transcript, seconds=1.5) == Score(errors, words, clips=1, seconds=1.5)
