"""Recordings that were joined by appending one file to another are decoded to the last."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.decode import decode, decode_into
from audio.errors import AudioTooLongError, UnsupportedFormatError
from audio.joined import begins
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pool import DecodePool
from tests.audio.media_files import FRAGMENTED, media
from tests.audio.sound_files import encoded, tone

LIMITS = AudioLimits()
# FFmpeg's format, codec, options and rate.
KINDS = {
    "float wav": ("wav", "pcm_f32le", {}, 16000),
    "mu-law wav": ("wav", "pcm_mulaw", {}, 8000),
    "16-bit wav": ("wav", "pcm_s16le", {}, 16000),
    "flac": ("flac", "flac", {}, 16000),
    "aiff": ("aiff", "pcm_s16be", {}, 16000),
    "caf": ("caf", "pcm_s16le", {}, 16000),
    "m4a": ("ipod", "aac", {}, 48000),
    "fragmented mp4": ("mp4", "aac", FRAGMENTED, 48000),
    "wma": ("asf", "wmav2", {}, 44100),
}


def of(kind, frequency, seconds=1.0, channels=1):
    form, codec, options, rate = KINDS[kind]
    return media(np.stack([tone(frequency, seconds, rate)] * channels), rate, form, codec, options)


def loudest_frequency(samples):
    return np.abs(np.fft.rfft(samples * np.hanning(len(samples)))).argmax() * 16000 / len(samples)


@pytest.fixture(scope="module")
def pool():
    with DecodePool() as pool:
        yield pool


@pytest.mark.parametrize("kind", KINDS)
def test_joined_recordings_are_decoded_to_the_last(pool, kind):
    file, taken = b"".join(of(kind, frequency) for frequency in (400, 1000, 2000)), bytearray()

    origin = pool.decode_into(lambda block, _: taken.extend(block), io.BytesIO(file), Wanted(16000))

    samples = np.frombuffer(taken, np.float32)
    assert origin.seconds == pytest.approx(3, abs=0.4)
    third = len(samples) // 3
    for number, frequency in enumerate((400, 1000, 2000)):
        middle = samples[number * third + 4000 : (number + 1) * third - 4000]
        assert loudest_frequency(middle) == pytest.approx(frequency, abs=10)
    assert not origin.truncated


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(2_000, 100_000), min_size=2, max_size=3))
def test_joined_flacs_have_every_sample_wherever_one_begins(lengths):
    noise = np.random.default_rng(1).integers(-1000, 1000, sum(lengths)) / 2**15
    parts = np.split(noise, np.cumsum(lengths)[:-1])

    audio = decode(io.BytesIO(b"".join(encoded(part, 16000, "FLAC") for part in parts)), rate=16000, limits=LIMITS)

    np.testing.assert_array_equal(audio.samples, noise.astype(np.float32))
    assert not audio.truncated


@pytest.mark.parametrize("kind", ["16-bit wav", "flac", "m4a"])
def test_one_that_does_not_decode_ends_the_recording_and_is_said(kind):
    second = bytearray(of(kind, 1000))
    second[16:] = bytes(len(second) - 16)  # its first header stays

    audio = decode(io.BytesIO(of(kind, 400) + bytes(second)), rate=16000, limits=LIMITS)

    assert audio.seconds == pytest.approx(1, abs=0.1)
    assert audio.truncated or kind == "flac"  # whose first header is no header without its blocks


def test_limits_count_all_of_them():
    with pytest.raises(AudioTooLongError, match=r"longer than 2\.5 s"):
        decode(io.BytesIO(3 * of("flac", 400)), rate=16000, limits=AudioLimits(max_seconds=2.5))


def test_channels_are_kept_apart_over_all_of_them_if_they_are_as_many():
    heard = {0: 0, 1: 0}

    def take(samples, channel):
        heard[channel] += len(samples) // 4

    decode_into(take, io.BytesIO(2 * of("float wav", 400, channels=2)), Wanted(16000, by_channel=True))

    assert heard == {0: 32000, 1: 32000}
    other = of("float wav", 400, channels=2) + of("float wav", 400)
    with pytest.raises(UnsupportedFormatError, match="2 channels and later 1"):
        decode_into(take, io.BytesIO(other), Wanted(16000, by_channel=True))


@pytest.mark.parametrize("codec", ["PCM_16", "PCM_24", "FLOAT", "ULAW"])
def test_a_size_that_leaves_samples_out_is_said(codec):
    file = bytearray(encoded(tone(400, 1.0, 16000), 16000, "WAV", codec))
    place = file.index(b"data") + 4
    size = int.from_bytes(file[place : place + 4], "little") // 2
    file[place : place + 4] = size.to_bytes(4, "little")

    audio = decode(io.BytesIO(file), rate=16000, limits=LIMITS)

    assert audio.truncated


@pytest.mark.parametrize(("container", "codec"), [("MP3", "MPEG_LAYER_III"), ("FLAC", "PCM_16")])
def test_a_count_that_leaves_samples_out_is_said(container, codec):
    noise = np.random.default_rng(0).normal(0, 0.2, 60 * 16000).clip(-1, 1)
    file = bytearray(encoded(noise, 16000, container, codec))
    assert not decode(io.BytesIO(file), rate=16000, limits=LIMITS).truncated
    if container == "MP3":
        place = max(file.find(b"Xing"), file.find(b"Info")) + 8
        file[place : place + 4] = (int.from_bytes(file[place : place + 4], "big") // 10).to_bytes(4, "big")
    else:  # the last bytes of the number of samples, behind the magic and the header of its block
        file[22:26] = (6 * 16000).to_bytes(4, "big")

    assert decode(io.BytesIO(file), rate=16000, limits=LIMITS).truncated


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_anywhere_has_its_beginnings_within(kind):
    file = of(kind, 400, 0.2) * 3
    form = {"ipod": "mp4", "asf": "wma"}.get(KINDS[kind][0], KINDS[kind][0])
    for stop in range(0, len(file), 97):
        found = begins(io.BytesIO(file[:stop]), form)
        assert found == sorted(set(found))
        assert found[-1] <= max(0, stop - 12)
