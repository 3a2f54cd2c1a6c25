"""The benchmark of detokenizing leaves the interpreter as it was."""

import sys

import pytest

from benchmarks.detokenize import switching


def test_the_switch_interval_is_restored_after_an_error():
    before = sys.getswitchinterval()

    with pytest.raises(KeyError), switching(before / 2):
        raise KeyError

    assert sys.getswitchinterval() == before
