from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.synthesis.recorded import ALICE, BOB, Recorded
from training.synthesis.readings import Readings
from training.synthesis.voice import Voice
from training.synthesis.voices import VOICES

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
def test_every_sentence_is_said_once_before_any_is_said_again(seed, rounds):
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
