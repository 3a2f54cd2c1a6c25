"""Benchmarks compute percentiles and lengths correctly."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.offline import utterance_seconds
from benchmarks.random_model import random_checkpoint
from benchmarks.timing import Latency, times_of


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=300))
def test_a_percentile_is_one_of_the_times_and_no_more_than_its_share_took_longer(times):
    latency = Latency.of(times)

    for share, seconds in ((0.5, latency.p50), (0.9, latency.p90), (0.95, latency.p95), (0.99, latency.p99)):
        assert seconds in times
        assert sum(other > seconds for other in times) <= (1 - share) * len(times) + 1e-9
    assert latency.mean == pytest.approx(statistics.fmean(times))


def test_what_warms_up_is_not_measured():
    calls = []

    assert len(times_of(lambda: calls.append(1), repeats=3, warm_ups=2)) == 3
    assert len(calls) == 5


def test_lengths_are_spread_as_those_of_read_speech():
    seconds = utterance_seconds(5000)

    assert seconds == utterance_seconds(5000)
    assert 1.3 <= min(seconds) < 2
    assert 30 < max(seconds) <= 35
    assert 6.5 < statistics.fmean(seconds) < 7.8


def test_a_jasper_of_full_size_has_the_published_parameters():
    with torch.device("meta"):
        from benchmarks.random_model import JASPER
        from models.encoders.jasper import JasperEncoder

        parameters = sum(parameter.numel() for parameter in JasperEncoder(JASPER).parameters())

    assert parameters == pytest.approx(333e6, rel=0.005)


@pytest.mark.slow
def test_random_weights_are_the_same_for_the_same_seed():
    one, other = random_checkpoint("toy", "tdt"), random_checkpoint("toy", "tdt")

    assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)
