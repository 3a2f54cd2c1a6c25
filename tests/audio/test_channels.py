"""Each channel of a file has the same samples as a file of that channel alone."""

import io

import numpy as np
import pytest

from audio.channels import Channels
from audio.child_protocol import RING_BYTES
from audio.decode import decode
from audio.errors import UnsupportedFormatError
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pcm import RawFormat
from audio.pool import DecodePool
from tests.audio.media_files import media
from tests.audio.sound_files import encoded, tone
from tests.audio.test_pool import end

LIMITS = AudioLimits()


def sides(samples: int, channels: int) -> np.ndarray:
    """Sound [samples, channels] with different channels, in 16-bit steps."""
    noise = np.random.default_rng(5).normal(0, 0.1, (samples, channels))
    return (np.round(noise.clip(-1, 1) * 2**15) / 2**15).astype(np.float32)


def channels_of(data: bytes, rate: int = 16_000, raw: RawFormat | None = None) -> list[np.ndarray]:
    with Channels(rate, seconds_in_memory=2.0, are_apart=True) as channels:
        with DecodePool() as pool:
            pool.decode_into(channels.append, io.BytesIO(data), Wanted(rate, by_channel=True), raw)
        return [one.read(0, len(one)).copy() for one in channels]


@pytest.mark.parametrize("source_rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("channels", [1, 2, 8])
def test_a_channel_decodes_as_a_file_of_that_channel_alone(source_rate, channels):
    samples = sides(5 * source_rate + 7, channels)

    apart = channels_of(encoded(samples, source_rate))

    assert len(apart) == channels
    for number, channel in enumerate(apart):
        alone = decode(io.BytesIO(encoded(samples[:, number], source_rate)), rate=16_000, limits=LIMITS).samples
        np.testing.assert_allclose(channel, alone, rtol=0, atol=0 if source_rate == 16_000 else 1e-6)


def test_channels_of_raw_samples_and_of_ffmpegs_formats_are_separated():
    samples = sides(16_000, 2)
    raw = (samples * 2**15).astype("<i2").tobytes()

    np.testing.assert_array_equal(channels_of(raw, raw=RawFormat(2, 16_000)), samples.T)
    np.testing.assert_array_equal(channels_of(media(samples.T, 16_000, "mov", "pcm_s16be")), samples.T)


def test_channels_come_out_whole_even_if_a_child_dies_in_the_middle(children):
    tones = np.stack([tone(300, 60, 48_000), tone(500, 60, 48_000, 0.1)])
    data = media(tones, 48_000, "webm", "libopus")
    killed, losses = set(), []
    with DecodePool(on_loss=lambda: losses.append(1)) as pool, Channels(16_000, 5.0, are_apart=True) as channels:

        def take(samples, channel):
            channels.append(samples, channel)
            if not killed:
                killed.update(children())
                end(*killed)

        origin = pool.decode_into(take, io.BytesIO(data), Wanted(16_000, by_channel=True))
        apart = [one.read(0, len(one)) for one in channels]
        assert len(losses) == 1
        assert not killed & children()

    assert origin.channels == 2
    assert sum(one.nbytes for one in apart) > RING_BYTES
    np.testing.assert_array_equal(apart, channels_of(data))
    assert [np.abs(one).max() > 0.3 for one in apart] == [True, False]


def test_a_number_of_channels_that_changes_within_a_file_is_refused():
    mono, stereo = tone(300, 1, 48_000), np.stack([tone(300, 1, 48_000), tone(500, 1, 48_000)])
    joined = media(mono, 48_000, "adts", "aac") + media(stereo, 48_000, "adts", "aac")

    with pytest.raises(UnsupportedFormatError, match="1 channels and later 2"):
        channels_of(joined)
    assert decode(io.BytesIO(joined), rate=16_000, limits=LIMITS).seconds > 1.9  # their mean is taken as ever


@pytest.mark.parametrize(
    ("level", "is_silent"), [(0.0, True), (8 / 2**15, True), (-8 / 2**15, True), (9 / 2**15, False), (-0.5, False)]
)
def test_a_channel_with_rounding_noise_only_counts_as_silent(level, is_silent):
    with Channels(16_000, 1.0, are_apart=True) as channels:
        for number in range(2):
            channels.append(np.array([0.0, level], np.float32).tobytes(), number)

        assert [channels.is_silent(number) for number in range(2)] == [is_silent, is_silent]
        assert channels.seconds == 2 / 16_000
