"""Sources and speakers of uneven amounts are balanced as far as the recipe asks."""

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.balance import sampling_weights
from training.clip import Clip
from training.takes import Take


def take(source, speaker, seconds):
    return Take(Clip(Path("x"), "x", seconds, None, source, speaker))


TAKES = st.lists(st.builds(take, st.sampled_from("abc"), st.sampled_from("12"), st.floats(0.5, 20)), min_size=1)


def weights_of(takes, source, speaker):
    """Weights of takes, whose sources and speakers are numbered."""
    sources, speakers = [take.clip.source for take in takes], [take.clip.source + take.clip.speaker for take in takes]
    numbers = [[sorted(set(names)).index(name) for name in names] for names in (sources, speakers)]
    return sampling_weights([take.seconds for take in takes], *numbers, source, speaker).tolist()


def heard(takes, weights, key):
    """Audio of an epoch by group."""
    audio = defaultdict(float)
    for one, weight in zip(takes, weights, strict=True):
        audio[key(one.clip)] += weight * one.seconds
    return audio


@given(TAKES)
@settings(max_examples=50, deadline=None)
def test_full_powers_leave_every_clip_alone(takes):
    assert weights_of(takes, 1.0, 1.0) == [1.0] * len(takes)


@given(TAKES, st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_weights_are_1_on_average_and_a_speakers_clips_are_drawn_alike(takes, source, speaker):
    weights = weights_of(takes, source, speaker)

    assert sum(weights) == pytest.approx(len(takes))
    groups = defaultdict(set)
    for one, weight in zip(takes, weights, strict=True):
        groups[one.clip.source, one.clip.speaker].add(round(weight, 9))
    assert all(len(group) == 1 for group in groups.values())


@given(TAKES)
@settings(max_examples=50, deadline=None)
def test_powers_of_0_give_sources_and_their_speakers_the_same_audio(takes):
    weights = weights_of(takes, 0.0, 0.0)

    sources = heard(takes, weights, lambda clip: clip.source)
    speakers = heard(takes, weights, lambda clip: (clip.source, clip.speaker))
    for source, audio in sources.items():
        assert audio == pytest.approx(next(iter(sources.values())))
        mine = [spoken for (name, _), spoken in speakers.items() if name == source]
        assert mine == pytest.approx([audio / len(mine)] * len(mine))


@given(TAKES, st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_balancing_speakers_leaves_the_shares_of_sources_alone(takes, speaker):
    before = heard(takes, weights_of(takes, 0.5, 1.0), lambda clip: clip.source)
    after = heard(takes, weights_of(takes, 0.5, speaker), lambda clip: clip.source)

    first, last = sum(before.values()), sum(after.values())
    for source in before:
        assert after[source] / last == pytest.approx(before[source] / first)
