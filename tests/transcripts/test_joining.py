from hypothesis import given
from hypothesis import strategies as st

from transcripts.joining import Joiner, joined, shifted
from transcripts.transcript import Transcript, Word


def heard(*texts: str) -> Transcript:
    """A transcript in which each word has two tokens and two frames, and lasts a tenth of a second."""
    words = [Word(text, n / 10, (n + 1) / 10, 0.5, (2 * n, 2 * n + 2)) for n, text in enumerate(texts)]
    tokens = [ord(text[0]) for text in texts for _ in range(2)]
    counts = list(range(len(tokens)))
    return Transcript(" ".join(texts), tokens, [0.5] * len(tokens), words, counts, [1] * len(tokens))


WORDS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=5)


@given(st.lists(WORDS, max_size=6))
def test_a_joined_transcript_has_everything_once_and_each_word_its_own_tokens(parts):
    whole = joined([shifted(heard(*texts), 10.0 * number, 1000 * number) for number, texts in enumerate(parts)])

    words = [text for texts in parts for text in texts]
    assert whole.text.split() == words
    assert "  " not in whole.text
    assert [word.text for word in whole.words] == words
    assert len(whole.tokens) == len(whole.token_confidence) == 2 * len(words)
    assert whole.frames == (sorted(whole.frames) if parts else None)
    assert whole.durations == ([1] * len(whole.tokens) if parts else None)
    for word in whole.words:
        begin, end = word.token_span
        assert whole.tokens[begin:end] == [ord(word.text[0])] * 2
        assert whole.frames[begin] // 1000 == word.start // 10


def test_times_become_those_of_the_recording_to_the_millisecond():
    moved = shifted(heard("a", "b"), 12.3456)

    assert [(word.start, word.end) for word in moved.words] == [(12.346, 12.446), (12.446, 12.546)]
    assert moved.text == "a b"


def test_times_are_rounded_in_the_first_part_too():
    assert shifted(Transcript("a", [1], [0.5], [Word("a", 0.08, 0.1 + 0.2, 0.5, (0, 1))]), 0.0).words[0].end == 0.3


def test_a_time_that_is_not_known_stays_unknown():
    part = Transcript("a", [97], [0.5], [Word("a", None, None, 0.5, (0, 1))])

    assert joined([shifted(part, 12.5)]) == part


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), min_size=1, max_size=6))
def test_parts_that_share_audio_are_put_together_as_they_come(parts):
    # Word k is said in the k-th tenth of a second; each part has some words of its own, and some that the next has too.
    joiner, certain, begin, said = Joiner(), [], 0, 0
    for number, (own, shared) in enumerate(parts):
        shared = 0 if number + 1 == len(parts) else shared
        said = begin + own + shared + (parts[number - 1][1] if number else 0)
        part = shifted(heard(*(f"w{word}" for word in range(begin, said))), begin / 10, 2 * begin)
        certain.append(joiner.push(part, said / 10, shared / 10))
        begin = said - shared

    whole = joined(certain)

    assert whole.text.split() == [f"w{word}" for word in range(said)]
    assert [word.token_span for word in whole.words] == [(2 * n, 2 * n + 2) for n in range(said)]
    assert len(whole.tokens) == len(whole.token_confidence) == 2 * said
    assert whole.frames == list(range(2 * said))


def test_words_in_audio_shared_with_the_next_part_are_held_back_until_it_comes():
    joiner = Joiner()

    first = joiner.push(heard("a", "b", "c", "d"), 0.4, 0.2)
    second = joiner.push(shifted(heard("c", "d", "e"), 0.2), 0.5, 0.0)

    assert (first.text, second.text) == ("a b", "c d e")


def test_a_part_without_words_takes_nothing_from_its_neighbours():
    joiner = Joiner()

    parts = [joiner.push(heard("a", "b"), 0.2, 0.1), joiner.push(heard(), 0.3, 0.1), joiner.push(heard(), 0.5, 0.0)]

    assert joined(parts).text == "a b"
