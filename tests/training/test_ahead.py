"""Threads work ahead, and results and errors come as if they did not."""

import threading
from itertools import count, islice

import pytest

from training.ahead import ahead


def test_results_come_in_order_whatever_takes_longest():
    second_done = threading.Event()

    def slow_first(item):
        if item == 0:
            assert second_done.wait(10)
        if item == 1:
            second_done.set()
        return item

    assert list(ahead(slow_first, range(5), threads=2)) == [0, 1, 2, 3, 4]


def test_an_endless_source_is_taken_only_as_far_ahead_as_may_wait():
    taken = []

    def numbers():
        for number in count():
            taken.append(number)
            yield number

    results = ahead(lambda number: number, numbers(), held=3)

    assert list(islice(results, 2)) == [0, 1]
    assert taken == [0, 1, 2, 3, 4]
    results.close()


def test_an_error_comes_where_its_result_would_have_been():
    results = ahead(lambda number: 1 // (number - 2), range(4))

    assert [next(results), next(results)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
