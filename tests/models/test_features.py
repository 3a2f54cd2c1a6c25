"""Log-mel features: the numbers, the lengths, and that padding never matters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.config import FeatureConfig
from models.features import (
    FRAMES_OF_BLOCK,
    LogMelFeatures,
    mel_power_at_once,
    mel_power_by_blocks,
    slaney_mel_bank,
)
from tests.models import golden_data as golden
from tests.models.checkpoint.nemo_files import golden_tensors


def config(**changes):
    return replace(FeatureConfig(16_000, 400, 160, 0.01, 512, 80, 0.0, 8000.0, 0.97, 2**-24), **changes)


def noise(samples, seed=0):
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed)) * 0.1


def one_by_one(waveform, config):
    """The features of one clip, frame after frame, in float64."""
    emphasized = waveform.copy()
    if config.preemphasis is not None:
        emphasized[1:] -= config.preemphasis * waveform[:-1]
    half = config.fft_size // 2
    padded = np.pad(emphasized, half)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(config.window) / (config.window - 1))
    margin = (config.fft_size - config.window) // 2
    frames = []
    for frame in range(len(waveform) // config.hop):
        piece = padded[frame * config.hop + margin :][: config.window]
        power = np.abs(np.fft.rfft(piece * window, config.fft_size)) ** 2
        frames.append(np.log(slaney_mel_bank(config) @ power + config.log_offset))
    log_mel = np.array(frames).T
    deviation = log_mel.std(axis=1, ddof=1, keepdims=True)
    return (log_mel - log_mel.mean(axis=1, keepdims=True)) / (deviation + 1e-5)


@pytest.mark.parametrize(("name", "mels"), [("fastconformer-ctc-bpe", 80), ("fastconformer-tdt-bpe", 128)])
def test_the_mel_bank_and_the_window_equal_the_stored_ones(name, mels):
    tensors = golden_tensors(name)
    front_end = LogMelFeatures(config(mels=mels))

    torch.testing.assert_close(front_end.mel_bank, tensors["preprocessor.featurizer.fb"][0], rtol=0, atol=1e-8)
    torch.testing.assert_close(front_end.window, tensors["preprocessor.featurizer.window"], rtol=0, atol=1e-7)


def test_mel_bands_stay_between_their_edges():
    bank = slaney_mel_bank(config(low_hz=100.0, high_hz=4000.0, mels=20))

    hz = np.linspace(0, 8000, 257)
    assert (bank[:, (hz <= 100) | (hz >= 4000)] == 0).all()
    assert (bank.sum(axis=1) > 0).all()


@pytest.mark.parametrize(
    "changes",
    [{}, {"mels": 128}, {"window": 320, "mels": 64}, {"preemphasis": None}, {"hop": 128, "fft_size": 1024}],
    ids=str,
)
def test_features_equal_those_computed_frame_by_frame(changes):
    waveform = noise(8_123)

    features, lengths = LogMelFeatures(config(**changes))(waveform[None], torch.tensor([8_123]))

    expected = one_by_one(waveform.double().numpy(), config(**changes))
    assert lengths.tolist() == [expected.shape[1]]
    np.testing.assert_allclose(features[0].numpy(), expected, atol=2e-3)


@given(
    lengths=st.lists(st.integers(0, 2000) | st.sampled_from([0, 1, 159, 160, 161, 319, 320]), min_size=1, max_size=5),
    extra=st.integers(0, 700),
    garbage=st.sampled_from([0.0, 1.0, 1e30, float("inf"), float("nan")]),
)
@settings(max_examples=60, deadline=None)
def test_a_clip_gives_the_same_alone_and_in_any_padding(lengths, extra, garbage):
    front_end = LogMelFeatures(config())
    clips = [noise(length, seed) for seed, length in enumerate(lengths)]
    waveforms = torch.full((len(clips), max(lengths) + extra), garbage)
    for row, waveform in zip(waveforms, clips, strict=True):
        row[: len(waveform)] = waveform

    batch, frames = front_end(waveforms, torch.tensor(lengths))

    assert frames.tolist() == [length // 160 for length in lengths]
    for row, waveform, count in zip(batch, clips, frames, strict=True):
        alone, _ = front_end(waveform[None], torch.tensor([len(waveform)]))
        torch.testing.assert_close(row[:, :count], alone[0, :, :count], rtol=0, atol=1e-4)
        assert (row[:, count:] == 0).all()


@given(
    samples=st.integers(1024, 3000),
    rows=st.integers(1, 3),
    shape=st.sampled_from([(400, 160, 512), (320, 160, 512), (400, 128, 1024), (399, 7, 512), (512, 512, 512)]),
)
@example(samples=30_000, rows=3, shape=(400, 7, 512))  # several blocks
@settings(max_examples=40, deadline=None)
def test_blocks_of_frames_give_the_bands_of_all_at_once(samples, rows, shape):
    window, hop, fft_size = shape
    own = config(window=window, hop=hop, fft_size=fft_size)
    front_end = LogMelFeatures(own)
    parts = noise(rows * samples).view(rows, samples), front_end.window, front_end.mel_bank, own

    by_blocks, at_once = mel_power_by_blocks(*parts), mel_power_at_once(*parts)

    torch.testing.assert_close(by_blocks[:, :, : at_once.size(2)], at_once)


def test_all_blocks_have_one_shape(monkeypatch):
    shapes = set()
    rfft = torch.fft.rfft
    monkeypatch.setattr(torch.fft, "rfft", lambda block: shapes.add(block.shape) or rfft(block))
    front_end = LogMelFeatures(config())

    for rows, samples in ((1, 700), (3, 16_000), (5, 400_000)):
        waveforms = noise(rows * samples).view(rows, samples)
        mel_power_by_blocks(waveforms, front_end.window, front_end.mel_bank, front_end.config)

    assert shapes == {(FRAMES_OF_BLOCK, 512)}


def test_a_single_frame_gives_zeros():
    features, lengths = LogMelFeatures(config())(noise(300)[None], torch.tensor([300]))

    assert lengths.tolist() == [1]
    assert (features == 0).all()


def test_autocast_changes_nothing():
    front_end = LogMelFeatures(config())
    waveform = torch.from_numpy(golden.clip("slt-1s").copy())[None]
    lengths = torch.tensor([waveform.size(1)])

    with torch.autocast("cpu", torch.bfloat16):
        mixed, _ = front_end(waveform, lengths)

    assert mixed.dtype == torch.float32
    assert mixed.equal(front_end(waveform, lengths)[0])
