"""The idle share is what the union of kernels leaves of the steady part."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.idle import idle_share, kernels_of

INTERVALS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30)).map(lambda one: (one[0], sum(one))), min_size=1)


@given(INTERVALS, st.randoms())
def test_it_is_that_of_moments_counted_one_by_one(kernels, random):
    first, last = min(begin for begin, _ in kernels), max(end for _, end in kernels)
    ticks = 10 * (last - first)  # so that the bounds of the steady part are whole
    moments = [first + (tick + 0.5) / 10 for tick in range(ticks // 10, ticks - ticks // 10)]
    busy = sum(any(begin < moment < end for begin, end in kernels) for moment in moments)
    random.shuffle(kernels)

    assert idle_share(kernels) == pytest.approx(1 - busy / len(moments))


def test_without_a_kernel_or_a_length_there_is_none():
    assert idle_share([]) is None
    assert idle_share([(5.0, 5.0)]) is None


@pytest.mark.gpu
def test_the_profiler_finds_each_kernel_and_no_copy():
    values = torch.zeros(1000, device="cuda")

    kernels = kernels_of(lambda: [values.add_(1).cpu() for _ in range(300)])

    assert len(kernels) == 300
    if (
        "no GPU" in torch.cuda.get_device_name()
    ):  # its kernels run for two thirds of the time (tests/null_cuda/profiler.c)
        assert idle_share(kernels) == pytest.approx(1 / 3, abs=0.01)
