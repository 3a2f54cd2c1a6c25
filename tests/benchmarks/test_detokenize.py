"""The benchmark of detokenizing leaves the interpreter as it was."""

import signal
import sys
import threading

import pytest

from benchmarks.detokenize import launches_a_second, switching


def test_the_switch_interval_is_restored_after_an_error():
    before = sys.getswitchinterval()

    with pytest.raises(KeyError), switching(before / 2):
        raise KeyError

    assert sys.getswitchinterval() == before


def test_no_thread_is_left_after_an_interrupt():
    before = threading.active_count()

    with pytest.raises(KeyboardInterrupt):
        launches_a_second(lambda: signal.raise_signal(signal.SIGINT))

    assert threading.active_count() == before
