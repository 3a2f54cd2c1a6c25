"""A file that is decoded while it arrives has the samples that it has when it is decoded at once."""

import io
from itertools import pairwise

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.decode import decode_into
from audio.errors import InvalidAudioError
from audio.growing import BeginningChangedError, Decoding, GrowingRecording
from audio.limits import AudioLimits
from audio.raw import RawFormat
from audio.recording import Recording
from tests.audio.media_files import LIVE, NO_XING, media

RATE = 16_000
SECONDS = 40  # libsndfile's blocks have up to 16 s, of which two are held back
FEW_SECONDS = 12
RAW = RawFormat(channels=2, rate=8_000)


def sound(rate: int, channels: int = 1, seconds: int = FEW_SECONDS) -> np.ndarray:
    """Noise, [channels, samples]; of two channels one is the other inverted, from time to time."""
    samples = 0.1 * np.random.default_rng(0).standard_normal((1, seconds * rate)).astype(np.float32)
    if channels == 1:
        return samples
    swings = np.sign(np.sin(np.arange(seconds * rate) / rate)) * np.linspace(0.5, 1.5, seconds * rate)
    return np.vstack((samples, samples * swings)).astype(np.float32)


def sound_file(form: str, subtype: str, rate: int, channels: int = 1) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, sound(rate, channels, SECONDS).T, rate, format=form, subtype=subtype)
    return file.getvalue()


def without_length(wav: bytes) -> bytes:
    """A WAV as it is written to a pipe."""
    place = wav.index(b"data") + 4
    return wav[:place] + bytes(4) + wav[place + 4 :]


MADE = {
    "wav": lambda: sound_file("WAV", "PCM_16", 16_000),
    "wav, two channels, 44.1 kHz": lambda: sound_file("WAV", "PCM_16", 44_100, 2),
    "wav, float, 8 kHz": lambda: sound_file("WAV", "FLOAT", 8_000, 2),
    "wav, mu-law": lambda: sound_file("WAV", "ULAW", 8_000),
    "wav from a pipe": lambda: without_length(sound_file("WAV", "PCM_16", 16_000, 2)),
    "raw": lambda: sound_file("RAW", "PCM_16", 8_000, 2),
    "flac": lambda: sound_file("FLAC", "PCM_16", 22_050, 2),
    "ogg vorbis": lambda: sound_file("OGG", "VORBIS", 16_000),
    "ogg opus": lambda: media(sound(48_000, 2), 48_000, "ogg", "libopus"),
    "mp3": lambda: media(sound(16_000, 2, SECONDS), 16_000, "mp3", "libmp3lame"),
    "mp3 without xing": lambda: media(sound(44_100), 44_100, "mp3", "libmp3lame", NO_XING),
    "aac": lambda: media(sound(44_100), 44_100, "adts", "aac"),
    "webm": lambda: media(sound(48_000), 48_000, "webm", "libopus", LIVE),
}


def decoded(content: bytes, decoding: Decoding, name: str = "") -> None:
    raw = RAW if name == "raw" else None
    origin = decode_into(decoding, io.BytesIO(content), rate=RATE, limits=AudioLimits(), raw=raw)
    decoding.finish(origin.channels)


@pytest.mark.parametrize("name", MADE)
def test_it_has_the_samples_of_the_whole_file_and_most_of_them_before(name):
    content = MADE[name]()
    with Recording(RATE, 1.0) as at_once, Recording(RATE, 1.0) as recording:
        decoded(content, Decoding(GrowingRecording(at_once), is_whole=True), name)
        whole = at_once.read(0, len(at_once))
        growing = GrowingRecording(recording)
        for part in np.random.default_rng(len(content)).uniform([0.3, 0.8], [0.8, 1.0]):
            decoded(content[: int(part * len(content))], Decoding(growing, is_whole=False), name)
            np.testing.assert_array_equal(recording.read(0, len(recording)), whole[: len(recording)])
            assert part * len(whole) - 34 * RATE < len(recording) < part * len(whole)
        decoded(content, Decoding(growing, is_whole=True), name)

        np.testing.assert_array_equal(recording.read(0, len(recording)), whole)


def blocks(*values: float) -> list[bytes]:
    return [np.full(RATE, value, np.float32).tobytes() for value in values]


@pytest.mark.parametrize("changed", [(1, 2, 9, 4, 5, 6), (9, 2, 3, 4, 5, 6), (1, 2), ()])
def test_another_beginning_than_before_is_found(changed):
    with Recording(RATE, 1.0) as recording:
        growing = GrowingRecording(recording)
        first = Decoding(growing, is_whole=False)
        for block in blocks(1, 2, 3, 4, 5):
            first(block)
        assert recording.seconds == 3

        def again() -> None:
            second = Decoding(growing, is_whole=True)
            for block in blocks(*changed):
                second(block)
            second.finish(channels=1)

        with pytest.raises(BeginningChangedError):
            again()
        assert recording.seconds == 3


@settings(max_examples=50, deadline=None)
@given(data=st.data(), lengths=st.lists(st.integers(0, 3 * RATE), max_size=12))
def test_blocks_of_any_length_are_put_together(data, lengths):
    samples = np.random.default_rng(0).random(sum(lengths), np.float32)
    ends = np.cumsum([0, *lengths])
    with Recording(RATE, 1.0) as recording:
        growing = GrowingRecording(recording)
        for end in [*data.draw(st.lists(st.integers(0, len(lengths)), max_size=3)), None]:
            decoding = Decoding(growing, is_whole=end is None)
            for first, last in pairwise(ends[: None if end is None else end + 1]):
                decoding(samples[first:last].tobytes())
            decoding.finish(channels=data.draw(st.integers(1, 2)))
            assert len(recording) <= max(0, len(samples) - 2 * RATE) or end is None

        np.testing.assert_array_equal(recording.read(0, len(samples)), samples)


def test_two_mp3s_in_a_row_begin_otherwise_than_one():
    """libsndfile reads the first; when the second arrives, FFmpeg must read both, and decodes to other last bits."""
    content = media(sound(16_000), 16_000, "mp3", "libmp3lame")
    with Recording(RATE, 1.0) as recording:
        growing = GrowingRecording(recording)
        decoded(content, Decoding(growing, is_whole=False))

        with pytest.raises(BeginningChangedError):
            decoded(content * 2, Decoding(growing, is_whole=True))


def test_an_mp4_whose_index_comes_last_does_not_decode_before_it_has_arrived():
    content = media(sound(16_000), 16_000, "mp4", "aac")
    with Recording(RATE, 1.0) as recording, pytest.raises(InvalidAudioError):
        decoded(content[: len(content) // 2], Decoding(GrowingRecording(recording), is_whole=False))
