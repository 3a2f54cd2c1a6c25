from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.synthesis.recorded import ALICE, BOB, Recorded
from training.synthesis.readings import Readings
from training.synthesis.voice import Voice
from training.synthesis.voices import PROGRAMS, voices_of

VOICES = voices_of(PROGRAMS)
SENTENCES = [f"sentence {number}" for number in range(7)]
numbers = st.integers(0, 10**6)


@given(seed=st.integers(0, 2**31), numbers=st.lists(numbers, min_size=1, max_size=10), attempt=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_a_reading_depends_on_seed_number_and_attempt_only(seed, numbers, attempt):
    forth, back = Readings(SENTENCES, VOICES, seed), Readings(SENTENCES, VOICES, seed)

    one = [forth.draw(number, attempt) for number in numbers]
    other = [back.draw(number, attempt) for number in reversed(numbers)]

    assert one == other[::-1]


@given(seed=st.integers(0, 2**31), rounds=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_every_sentence_is_read_once_before_any_is_read_again(seed, rounds):
    readings = Readings(SENTENCES, VOICES, seed)

    said = [readings.draw(number).sentence for number in range(7 * rounds, 7 * rounds + 7)]

    assert sorted(said) == SENTENCES


@given(seed=st.integers(0, 2**31), number=numbers)
@settings(max_examples=50, deadline=None)
def test_another_attempt_has_the_same_sentence_in_another_manner(seed, number):
    readings = Readings(SENTENCES, VOICES, seed)

    first, second = readings.draw(number), readings.draw(number, attempt=1)

    assert first.sentence == second.sentence
    assert first.manner != second.manner
    assert 0.75 <= first.manner.speed <= 1.3
    assert 0.8 <= first.manner.pitch <= 1.25


def test_seeds_differ():
    one, other = (Readings(SENTENCES, VOICES, seed) for seed in (0, 1))

    assert [one.draw(number) for number in range(5)] != [other.draw(number) for number in range(5)]


def test_each_synthesizer_speaks_as_often_as_the_others():
    voices = [*VOICES, Voice(Recorded(), ALICE), Voice(Recorded(), BOB)]
    readings = Readings(SENTENCES, voices, seed=0)

    heard = Counter(readings.draw(number).voice.synthesizer.name for number in range(1000))

    assert set(heard) == {"espeak-ng", "flite", "festival", "recorded"}
    assert all(200 < times < 300 for times in heard.values())


@given(seed=st.integers(0, 2**31), number=numbers, words=st.integers(1, 25))
@settings(max_examples=100, deadline=None)
def test_a_fragment_is_some_words_of_its_sentence(seed, number, words):
    sentence = " ".join(f"word{index}" for index in range(words))
    readings = Readings([sentence], VOICES, seed, fragments=1.0)

    said = readings.draw(number).sentence

    assert said
    assert f" {said} " in f" {sentence} "
    assert readings.draw(number, attempt=1).sentence == said


def test_the_share_of_fragments_is_kept_and_they_have_all_lengths():
    readings = Readings(["one two three four"], VOICES, seed=0, fragments=0.5)

    lengths = Counter(len(readings.draw(number).sentence.split()) for number in range(800))

    assert set(lengths) == {1, 2, 3, 4}
    assert all(70 < lengths[words] < 130 for words in (1, 2, 3))


def test_every_synthesizer_reads_fragments_and_whole_sentences():
    sentence = "one two three four five"
    readings = Readings([sentence], VOICES, seed=0, fragments=0.5)

    drawn = [readings.draw(number) for number in range(1200)]

    heard = Counter((reading.voice.synthesizer.name, reading.sentence == sentence) for reading in drawn)
    assert len(heard) == 6  # 160 fragments and 240 sentences each
    assert min(heard.values()) > 120


def test_a_synthesizer_is_asked_for_no_speed_that_it_has_not():
    recorded = Recorded()
    recorded.speeds = (0.99, 1.01)
    readings = Readings(SENTENCES, [Voice(recorded, ALICE)], seed=0)

    assert all(0.99 <= readings.draw(number).manner.speed <= 1.01 for number in range(50))
