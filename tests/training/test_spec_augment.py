"""SpecAugment hides what the recipe allows, within the clip."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from training.recipe_augmentation import SpecAugment
from training.spec_augment import draw_masks

CONFIGS = st.builds(
    SpecAugment,
    mel_masks=st.integers(0, 4),
    mel_width=st.integers(0, 100),
    time_masks=st.integers(0, 8),
    time_share=st.floats(0, 1),
)


def stretches(mask):
    """Widths of the runs of hidden positions."""
    edges = np.flatnonzero(np.diff(mask.astype(int), prepend=0, append=0))
    return edges[1::2] - edges[::2]


@given(st.integers(0, 300), st.integers(1, 128), CONFIGS, st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_masks_are_as_long_as_the_clip_and_hide_no_more_than_allowed(frames, mels, config, seed):
    masked_frames, masked_mels = draw_masks(frames, mels, config, np.random.default_rng(seed))

    assert masked_frames.shape == (frames,)
    assert masked_mels.shape == (mels,)
    assert len(stretches(masked_frames)) <= config.time_masks
    assert len(stretches(masked_mels)) <= config.mel_masks
    assert masked_frames.sum() <= config.time_masks * int(config.time_share * frames)
    assert masked_mels.sum() <= config.mel_masks * config.mel_width


def test_every_frame_and_every_band_is_hidden_now_and_then_and_up_to_the_full_width():
    config = SpecAugment(mel_masks=1, mel_width=10, time_masks=1, time_share=0.2)
    random = np.random.default_rng(0)

    drawn = [draw_masks(50, 80, config, random) for _ in range(2000)]

    frames, mels = np.array([one for one, _ in drawn]), np.array([other for _, other in drawn])
    assert frames.any(axis=0).all()
    assert mels.any(axis=0).all()
    assert set(frames.sum(axis=1)) == set(range(11))
    assert set(mels.sum(axis=1)) == set(range(11))
