"""A take that is held is what it was when it was decoded, and what does not fit is decoded again."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from training.decoded import DecodedTakes


@dataclass(eq=False)
class Counted:
    """A take that counts how often it is decoded."""

    sound: np.ndarray
    decoded: int = field(default=0)

    def samples(self, rate):
        self.decoded += 1
        return self.sound


@given(st.lists(st.integers(-(2**15), 2**15 - 1), max_size=50), st.booleans())
@settings(max_examples=100, deadline=None)
def test_samples_of_sixteen_bits_come_back_exactly_held_or_not(values, fits):
    sound = np.array(values, np.float32) / 2**15
    take, decoded = Counted(sound), DecodedTakes(max_bytes=100 if fits else -1)

    assert np.array_equal(decoded.samples(take), sound)
    assert np.array_equal(decoded.samples(take), sound)
    assert take.decoded == (1 if fits else 2)


def test_what_is_louder_than_a_file_can_say_is_cut():
    decoded = DecodedTakes().samples(Counted(np.array([-1.5, 1.5], np.float32)))

    assert decoded.min() == -1
    assert 0.999 < decoded.max() < 1


class DecodedTwice(Counted):
    """A take that two threads decode at the same time."""

    both = Barrier(2, timeout=60)

    def samples(self, rate):
        self.both.wait()
        return super().samples(rate)


def test_a_take_that_two_threads_decode_takes_its_room_once():
    silence, decoded = np.zeros(10, np.float32), DecodedTakes(max_bytes=40)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(decoded.samples, [DecodedTwice(silence)] * 2))

    other = Counted(silence)
    for _ in range(2):
        decoded.samples(other)

    assert other.decoded == 1


def test_no_more_is_held_than_there_is_room_for():
    takes = [Counted(np.zeros(10, np.float32)) for _ in range(5)]
    decoded = DecodedTakes(max_bytes=50)

    for _ in range(2):
        for take in takes:
            decoded.samples(take)

    assert [take.decoded for take in takes] == [1, 1, 2, 2, 2]
