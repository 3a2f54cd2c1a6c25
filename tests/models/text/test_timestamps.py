"""Words from tokens: where they begin and end, and which tokens they are made of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.search.result import UtteranceTokens
from models.text.timestamps import words
from models.text.tokenizers import CharacterTokenizer, SentencePieceTokenizer, Vocabulary
from tests.models.checkpoint.nemo_files import TOKENIZER, golden_members

CHARACTERS = Vocabulary(CharacterTokenizer([" ", *"abcdefghijklmnopqrstuvwxyz", "'", "."]))
SUBWORDS = Vocabulary(SentencePieceTokenizer(golden_members()[TOKENIZER]))


def row(tokens, frames, ends, *, tdt=False):
    durations = [end - frame for frame, end in zip(frames, ends, strict=True)] if tdt else None
    confidence = [1 - index / 100 for index in range(len(tokens))]
    return UtteranceTokens(tokens=tokens, frames=frames, ends=ends, durations=durations, confidence=confidence)


def row_of(vocabulary, *pieces, frames=None, ends=None, tdt=False):
    tokens = [vocabulary.pieces.index(piece) for piece in pieces]
    frames = list(range(0, 2 * len(tokens), 2)) if frames is None else frames
    ends = [frame + 1 for frame in frames] if ends is None else ends
    return row(tokens, frames, ends, tdt=tdt)


def times_of(vocabulary, utterance):
    return [(word.text, word.start, word.end, word.token_span) for word in words(utterance, vocabulary, float)]


@pytest.mark.parametrize(
    ("vocabulary", "pieces", "expected"),
    [
        (SUBWORDS, ("▁the", "re", "▁is", "▁so"), [("there", 0, 3, (0, 2)), ("is", 4, 5, (2, 3)), ("so", 6, 7, (3, 4))]),
        # A space belongs to no word; spaces at the start count to the first word's time, and at the end to none.
        (CHARACTERS, tuple("to be"), [("to", 0, 3, (0, 2)), ("be", 6, 9, (3, 5))]),
        (CHARACTERS, tuple("  a "), [("a", 0, 5, (2, 3))]),
        # A punctuation mark belongs to the word before it, even across a space; a leading one begins the first word.
        (CHARACTERS, tuple("a . b"), [("a.", 0, 5, (0, 3)), ("b", 8, 9, (4, 5))]),
        (CHARACTERS, tuple(".a"), [(".a", 0, 3, (0, 2))]),
        # The start of a word that nothing follows is no word; an unknown piece is one.
        (SUBWORDS, ("▁so", "▁", "▁is"), [("so", 0, 1, (0, 1)), ("is", 4, 5, (2, 3))]),
        (SUBWORDS, ("▁so", "<unk>"), [("so", 0, 1, (0, 1)), ("⁇", 2, 3, (1, 2))]),
        (SUBWORDS, (), []),
    ],
)
def test_tokens_are_joined_to_words(vocabulary, pieces, expected):
    assert times_of(vocabulary, row_of(vocabulary, *pieces)) == expected


def test_punctuation_of_an_rnnt_has_its_own_frame_and_that_of_a_tdt_is_at_the_end_of_the_word_before():
    rnnt = row_of(SUBWORDS, "▁so", "?", frames=[1, 9])
    tdt = row_of(SUBWORDS, "▁so", "?", "!", "▁is", frames=[1, 9, 12, 20], ends=[4, 12, 15, 22], tdt=True)

    assert times_of(SUBWORDS, rnnt) == [("so?", 1, 10, (0, 2))]
    assert times_of(SUBWORDS, tdt) == [("so?!", 1, 4, (0, 3)), ("is", 20, 22, (3, 4))]


@given(
    vocabulary=st.sampled_from([CHARACTERS, SUBWORDS]),
    data=st.data(),
    tdt=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_words_are_the_text_in_order_and_never_overlap(vocabulary, data, tdt):
    tokens = data.draw(st.lists(st.integers(0, len(vocabulary.pieces) - 1), max_size=20))
    frames = sorted(data.draw(st.lists(st.integers(0, 50), min_size=len(tokens), max_size=len(tokens))))
    utterance = row(tokens, frames, [frame + 1 for frame in frames], tdt=tdt)

    found = words(utterance, vocabulary, float)

    assert "".join(word.text for word in found).replace(" ", "") == vocabulary.text(tokens).replace(" ", "")
    assert all(word.start <= word.end for word in found)
    spans = [bound for word in found for bound in word.token_span]
    assert spans == sorted(spans)
    assert all(first < last for first, last in zip(spans[::2], spans[1::2], strict=True))
    assert all(word.confidence == min(utterance.confidence[slice(*word.token_span)]) for word in found)


UNSPACED = Vocabulary(CharacterTokenizer([" ", *"今天你好，。スーパっゞｯที่นี่ៗ", *"gpu"]))


@pytest.mark.parametrize("is_ctc", [False, True])
def test_no_word_ends_behind_its_utterance_though_its_last_frame_does(is_ctc):
    utterance = row_of(SUBWORDS, "▁the", "re", "▁so", frames=[0, 4, 7], ends=[1, 5, 8])

    found = words(utterance, SUBWORDS, lambda frame: frame / 25, is_ctc=is_ctc, length=0.298)

    assert [word.end for word in found][1:] == [0.298]


def test_in_scripts_without_spaces_each_token_is_a_word_and_marks_belong_to_the_one_before():
    utterance = row_of(UNSPACED, *"今天，你好。")

    assert [word for word, *_ in times_of(UNSPACED, utterance)] == ["今", "天，", "你", "好。"]
    assert [span for *_, span in times_of(UNSPACED, utterance)] == [(0, 1), (1, 3), (3, 4), (4, 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("好gpu你", ["好", "gpu", "你"]),
        ("スーパ", ["スー", "パ"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("スゞパｯ", ["スゞ", "パｯ"]),
        ("นៗ", ["นៗ"]),
        ("好 你", ["好", "你"]),
    ],
)
def test_small_signs_and_letters_of_other_scripts_stay_together(text, expected):
    assert [word for word, *_ in times_of(UNSPACED, row_of(UNSPACED, *text))] == expected


def test_a_word_of_ctc_lasts_as_long_as_its_last_token():
    utterance = row_of(SUBWORDS, "▁the", "re", "▁is", "▁so", frames=[0, 10, 12, 40], ends=[1, 11, 13, 50])

    found = words(utterance, SUBWORDS, lambda frame: frame / 40, is_ctc=True, length=1.3)

    # 0.1 s and 0.05 s a letter: until the next word, as long as that, and to the end of the run that is longer.
    assert [(word.text, word.start, word.end) for word in found] == [
        ("there", 0, pytest.approx(0.3)),
        ("is", 0.3, pytest.approx(0.5)),
        ("so", 1.0, 1.25),
    ]


def test_a_word_of_ctc_ends_with_its_utterance_and_punctuation_takes_no_time():
    utterance = row_of(CHARACTERS, *"ab.", frames=[0, 10, 30], ends=[1, 11, 31])

    (long,) = words(utterance, CHARACTERS, lambda frame: frame / 40, is_ctc=True, length=9.0)
    (short,) = words(utterance, CHARACTERS, lambda frame: frame / 400, is_ctc=True, length=0.1)

    assert long.end == pytest.approx(0.25 + 0.15)
    assert short.end == pytest.approx(0.1)
