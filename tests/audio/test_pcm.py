"""16-bit PCM is read by NumPy, to the same samples as libsndfile reads."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audio.decode import decode
from audio.limits import AudioLimits
from audio.pcm import quick_pcm
from audio.riff import read_header
from tests.audio.sound_files import encoded, tone

LIMITS = AudioLimits(min_seconds=0.0)


def chunk(name, content):
    return name + len(content).to_bytes(4, "little") + content + bytes(len(content) % 2)


def with_chunks(data, before, after):
    """The WAV file with other chunks before its format and after its samples."""
    content = b"WAVE" + before + data[12:] + after
    return b"RIFF" + len(content).to_bytes(4, "little") + content


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 300_000),
    st.sampled_from([b"", chunk(b"LIST", b"abc"), chunk(b"JUNK", bytes(28))]),
    st.sampled_from([b"", chunk(b"LIST", b"INFO")]),
)
@example(2, 131_073, b"", b"")  # the last block is one frame, whose channels cancel out by chance
def test_the_samples_are_those_of_libsndfile(channels, frames, before, after):
    values = np.random.default_rng(frames).integers(-(2**15), 2**15, (frames, channels)).astype(np.int16)
    data = with_chunks(encoded(values, 16_000), before, after)

    audio = decode(io.BytesIO(data), rate=16_000, limits=LIMITS)

    assert read_header(io.BytesIO(data)).pcm is not None
    whole, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    expected = whole.mean(axis=1)
    np.testing.assert_array_equal(audio.samples[:1000], expected[:1000])
    np.testing.assert_array_equal(audio.samples[-1000:], expected[-1000:])
    assert (audio.channels, audio.seconds, audio.truncated) == (channels, frames / 16_000, False)


@pytest.mark.parametrize(
    ("data", "quick"),
    [
        (encoded(np.zeros(16_000), 16_000), True),
        (encoded(np.zeros(16_000), 8_000), False),
        (encoded(np.zeros(20 * 16_000), 16_000), False),
        (encoded(np.zeros(16_000), 16_000, "FLAC"), False),
        (encoded(np.zeros(16_000), 16_000).replace(b"WAVE", b"AVI "), False),
        (b"", False),
    ],
    ids=["a clip", "at another rate", "a long one", "flac", "another RIFF file", "nothing"],
)
def test_only_short_pcm_at_the_rate_asked_for_is_quick(data, quick):
    assert (quick_pcm(io.BytesIO(data), 16_000) is not None) is quick


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (b"", False),
        (b"LIST\x04\0\0\0INFO", False),
        (bytes(512), False),
        ((10_000 * tone(300, 1, 16_000)[5:]).astype("<i2").tobytes(), True),
    ],
)
def test_samples_behind_those_of_the_header_are_not_passed_over_in_silence(behind, expected):
    data = encoded(tone(500, 2, 16_000), 16_000) + behind

    audio = decode(io.BytesIO(data), rate=16_000, limits=AudioLimits())

    assert (audio.seconds, audio.truncated) == (2, expected)
