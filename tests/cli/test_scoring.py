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


def test_the_rate_of_a_sum_is_weighted_by_words():
    total = Score(errors=1, words=2, clips=1, seconds=1) + Score(errors=1, words=8, clips=1, seconds=4)

    assert total == Score(errors=2, words=10, clips=2, seconds=5)
    assert total.wer == 0.2


def test_without_words_there_is_no_rate():
    assert Score(errors=3).wer is None
