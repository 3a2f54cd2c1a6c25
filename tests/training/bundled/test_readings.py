from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from training.bundled.readings import Readings

VOICES = ["slt", "awb", "kal16", "kal"]
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


def test_each_voice_speaks_as_often_as_the_others():
    readings = Readings(SENTENCES, VOICES, seed=0)

    heard = Counter(readings.draw(number).voice for number in range(1000))

    assert set(heard) == set(VOICES)
    assert all(200 < times < 300 for times in heard.values())
