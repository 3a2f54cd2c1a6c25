"""Raw PCM decodes when its media type says everything that a header would."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.errors import AudioTooLongError, AudioTooShortError, UnsupportedFormatError
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pcm import RawFormat
from audio.pool import DecodePool

LIMITS = AudioLimits()
SAMPLES = np.random.default_rng(0).integers(-(2**15), 2**15, (8000, 2))


def decoded(data, raw, rate=16000, limits=LIMITS):
    samples = bytearray()
    with DecodePool() as pool:
        origin = pool.decode_into(lambda block, _: samples.extend(block), io.BytesIO(data), Wanted(rate, limits), raw)
    return origin, np.frombuffer(samples, np.float32)


@pytest.mark.parametrize(("order", "big_endian"), [("<i2", False), (">i2", True)])
def test_samples_in_either_order_of_bytes_are_those_that_were_sent(order, big_endian):
    data = SAMPLES.astype(order).tobytes()

    audio, samples = decoded(data, RawFormat(2, 16000, big_endian))

    np.testing.assert_allclose(samples, SAMPLES.mean(axis=1) / 2**15, atol=1e-6)
    assert (audio.seconds, audio.container, audio.channels, audio.source_rate) == (0.5, "pcm", 2, 16000)
    assert not audio.truncated


def test_half_a_frame_at_the_end_is_left_out():
    _, samples = decoded(bytes(4003), RawFormat(1, 8000), rate=8000)

    assert len(samples) == 2001


@pytest.mark.parametrize(
    ("raw", "size", "error"),
    [
        (RawFormat(9, 16000), 32000, UnsupportedFormatError),
        (RawFormat(1, 500), 32000, UnsupportedFormatError),
        (RawFormat(2_000_000_000, 16000), 32000, UnsupportedFormatError),
        (RawFormat(1, 16000), 2000, AudioTooShortError),
        (RawFormat(1, 16000), 0, AudioTooShortError),
        (RawFormat(1, 1000), 400_000, AudioTooLongError),
    ],
)
def test_the_limits_hold(raw, size, error):
    with pytest.raises(error):
        decoded(bytes(size), raw, limits=replace(LIMITS, max_seconds=120))


@pytest.mark.parametrize(
    ("media_type", "raw"),
    [
        ("audio/pcm;rate=16000;channels=1", RawFormat(1, 16000, big_endian=False)),
        ("audio/L16; channels=2; rate=44100", RawFormat(2, 44100, big_endian=True)),
        ('AUDIO/PCM; Rate="8000"; channels=1', RawFormat(1, 8000, big_endian=False)),
        ("audio/L16;rate=16000", RawFormat(1, 16000, big_endian=True)),
        ("audio/L16;channels=1", None),
        ("audio/pcm", None),
        ("audio/pcm;rate=16000", None),
        ("audio/pcm;rate=16000;channels=0", None),
        ("audio/pcm;rate=-1;channels=1", None),
        ("audio/pcm;rate=99999999999999;channels=1", None),
        ("audio/wav;rate=16000;channels=1", None),
        ("", None),
    ],
)
def test_only_a_complete_media_type_of_raw_pcm_has_a_format(media_type, raw):
    assert RawFormat.of_media_type(media_type) == raw


@given(st.text() | st.text().map("audio/pcm;{}".format) | st.text().map("audio/l16;channels=1;rate={}".format))
def test_any_text_is_a_format_or_none(text):
    raw = RawFormat.of_media_type(text)

    assert raw is None or (raw.rate > 0 and raw.channels > 0)
