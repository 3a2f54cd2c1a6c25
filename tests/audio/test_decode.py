"""Every supported format decodes to mono samples at the rate asked for; everything else is a typed error."""

import io
import tracemalloc
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
import soundfile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audio.decode import decode
from audio.errors import (
    AudioError,
    AudioTooLongError,
    AudioTooShortError,
    InvalidAudioError,
    UnsupportedFormatError,
)
from audio.limits import AudioLimits
from tests.audio.media_files import MEDIA, media, sample_of
from tests.audio.sound_files import LOSSLESS, LOSSY, encoded, tone

LIMITS = AudioLimits()
FORMATS = LOSSLESS + LOSSY
RATES = [8000, 11025, 16000, 44100, 48000]
OPUS_RATES = [8000, 16000, 48000]


def decoded(data, rate=16000, limits=LIMITS):
    return decode(io.BytesIO(data), rate=rate, limits=limits)


def noise(samples):
    return np.random.default_rng(0).normal(0, 0.1, samples).clip(-1, 1).astype(np.float32)


def level_and_frequency(samples, rate):
    """Of the strongest tone away from the edges of the clip."""
    middle = samples[rate // 10 : -rate // 10]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), n=2**18))
    return np.sqrt(2 * np.mean(middle**2)), spectrum.argmax() * rate / 2**18


@pytest.mark.parametrize(
    ("container", "codec", "source_rate"),
    [(*form, rate) for form in FORMATS for rate in (OPUS_RATES if form[1] == "OPUS" else RATES)],
)
def test_a_tone_keeps_its_length_level_and_pitch(container, codec, source_rate):
    audio = decoded(encoded(tone(1000, 1.234, source_rate), source_rate, container, codec))

    level, frequency = level_and_frequency(audio.samples, 16000)
    assert len(audio.samples) / 16000 == pytest.approx(1.234, abs=0.004)
    assert level == pytest.approx(0.5, rel=0.05)
    assert frequency == pytest.approx(1000, abs=1)
    assert audio.samples.dtype == np.float32
    assert audio.container == {"RF64": "wav", "W64": "wav"}.get(container, container.lower())
    # Opus is decoded at 48 kHz, whatever was encoded.
    assert audio.source_rate == (48000 if codec == "OPUS" else source_rate)
    assert audio.channels == 1
    assert audio.seconds == pytest.approx(1.234, abs=0.001)
    assert not audio.truncated


OF_FFMPEG = [("webm", "libopus"), ("ipod", "aac"), ("matroska", "flac")]


@pytest.mark.parametrize(
    ("form", "channels"),
    [(form, channels) for form in FORMATS + OF_FFMPEG for channels in ([2] if form[0] == "MP3" else [2, 8])],
)
def test_channels_are_averaged(form, channels):
    samples = np.zeros((48000, channels), np.float32)
    samples[:, 0] = tone(1000, 1, 48000)

    audio = decoded(media(samples.T, 48000, *form) if form in OF_FFMPEG else encoded(samples, 48000, *form))

    assert audio.channels == channels
    assert level_and_frequency(audio.samples, 16000)[0] == pytest.approx(0.5 / channels, rel=0.06)


@pytest.mark.parametrize(("container", "codec"), LOSSLESS)
def test_mono_at_the_rate_asked_for_is_what_soundfile_reads(container, codec):
    data = encoded(np.random.default_rng(0).uniform(-1, 1, 40_001).astype(np.float32), 16000, container, codec)

    np.testing.assert_array_equal(decoded(data).samples, soundfile.read(io.BytesIO(data), dtype="float32")[0])


# Limits


@pytest.mark.parametrize(
    ("most", "beyond", "error", "says"),
    [
        (40_000, 40_001, AudioTooLongError, r"longer than 2\.5 s"),
        (8_000, 7_999, AudioTooShortError, r"less than 0\.5 s"),
        (8_000, 0, AudioTooShortError, r"less than 0\.5 s"),
    ],
)
def test_the_limits_are_lengths_that_are_accepted_and_are_named(most, beyond, error, says):
    limits = AudioLimits(min_seconds=0.5, max_seconds=2.5)

    assert decoded(encoded(np.zeros(most), 16000), limits=limits).seconds == most / 16000
    with pytest.raises(error, match=says):
        decoded(encoded(np.zeros(beyond), 16000), limits=limits)


def test_a_small_file_of_endless_silence_is_refused_in_little_memory():
    bomb = encoded(np.zeros((48000 * 30, 8), np.int16), 48000, "FLAC")
    assert len(bomb) < 200_000

    tracemalloc.start()
    try:
        with pytest.raises(AudioTooLongError):
            decoded(bomb, limits=AudioLimits(max_seconds=3))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8_000_000  # the whole would be 46 MB


class CountingFile(io.BytesIO):
    read_bytes = 0

    def readinto(self, buffer):
        count = super().readinto(buffer)
        self.read_bytes += count
        return count


def test_a_long_file_is_refused_before_it_is_read():
    file = CountingFile(encoded(np.zeros(16000 * 100), 16000))

    with pytest.raises(AudioTooLongError):
        decode(file, rate=16000, limits=AudioLimits(max_seconds=2))

    assert file.read_bytes < 6 * 2 * 16000


@pytest.mark.parametrize(
    ("channels", "rate", "says"),
    [
        (9, 16000, "9 channels; at most 8"),
        (1000, 16000, "1000 channels; at most 8"),
        (1, 999, "999 Hz; from 1000 to 384000"),
        (1, 655_350, "655350 Hz; from 1000 to 384000"),
    ],
)
def test_channels_and_rates_out_of_range_are_refused(channels, rate, says):
    with pytest.raises(UnsupportedFormatError, match=says):
        decoded(encoded(np.zeros((16000, channels)), rate))


# Headers that lie


def with_flac_header(data, *, rate=None, total=None):
    """Forge the stream information of a FLAC file: 20 bits of rate, 8 of form, 36 of total samples from byte 18 on."""
    fields = int.from_bytes(data[18:26], "big")
    if rate is not None:
        fields = fields & ~(0xFFFFF << 44) | rate << 44
    if total is not None:
        fields = fields & ~(2**36 - 1) | total
    return data[:18] + fields.to_bytes(8, "big") + data[26:]


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_wav_written_to_a_pipe_is_read_to_its_end(size):
    data = bytearray(encoded(tone(440, 1, 16000), 16000))
    data[4:8] = data[40:44] = size.to_bytes(4, "little")

    audio = decoded(bytes(data))

    assert audio.seconds == 1
    assert not audio.truncated


@pytest.mark.parametrize(("total", "is_truncated"), [(0, False), (2**36 - 1, True)], ids=["unknown", "months"])
def test_a_flac_is_as_long_as_it_is_whatever_it_claims(total, is_truncated):
    audio = decoded(with_flac_header(encoded(tone(440, 1.7, 16000), 16000, "FLAC"), total=total))

    assert (audio.seconds, audio.truncated) == (1.7, is_truncated)


@pytest.mark.parametrize("size", [b"\0\0\0\x14", b"\0\x02\0\0"], ids=["short tag", "tag with a picture"])
@pytest.mark.parametrize(
    ("container", "form", "codec", "options"),
    [("aac", "adts", "aac", {}), ("flac", "flac", "flac", {}), ("mp3", "mp3", "libmp3lame", {"id3v2_version": "0"})],
    ids=["aac", "flac", "mp3"],
)
def test_an_id3_tag_may_stand_before_each_kind_of_stream(container, form, codec, options, size):
    stream = media(tone(440, 1, 16000), 16000, form, codec, options)
    tag = b"ID3\x04\0\0" + size + bytes(size[3] + (size[1] << 14))

    plain, tagged = decoded(stream), decoded(tag + stream)

    assert plain.container == tagged.container == container
    assert np.array_equal(plain.samples, tagged.samples)


@pytest.mark.parametrize("atom", [b"free", b"skip"])
def test_a_film_may_begin_with_room_that_is_not_used(atom):
    data = media(tone(440, 1.0, 44100), 44100, "mov", "pcm_s16be")
    assert data[4:8] == b"ftyp"

    audio = decoded(data[:4] + atom + data[8:])

    assert np.array_equal(audio.samples, decoded(data).samples)
    assert audio.container == "mp4"


def test_a_flac_with_a_forged_rate_is_refused():
    with pytest.raises(AudioError):
        decoded(with_flac_header(encoded(np.zeros(16000 * 10), 16000, "FLAC"), rate=655_350))


# Damage


@pytest.mark.parametrize(("container", "codec"), FORMATS)
def test_half_a_file_is_decoded_as_far_as_it_goes(container, codec):
    noise = np.random.default_rng(0).normal(0, 0.1, 16000 * 6).astype(np.float32)
    data = encoded(noise, 16000, container, codec)

    audio = decoded(data[: len(data) // 2])

    # Vorbis and Opus end at their last whole page, a second or so of them.
    assert (1.5 if container == "OGG" else 2.7) < audio.seconds < 3.1
    assert audio.truncated or container in {"OGG", "RF64", "W64"}


@pytest.mark.parametrize("sample", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_are_not_finite_are_refused(sample, channels):
    samples = np.zeros((48000, channels), np.float32)
    samples[40_000, -1] = sample

    with pytest.raises(InvalidAudioError, match="not numbers"):
        decoded(encoded(samples, 16000, "WAV", "FLOAT"))


def test_a_file_that_is_damaged_from_its_first_frame_is_invalid():
    data = encoded(tone(440, 1, 16000), 16000, "FLAC")

    with pytest.raises(InvalidAudioError):
        decoded(data[:100])


@cache
def whole_file(form):
    """A file of a form of libsndfile, or of FFmpeg by its name."""
    return sample_of(form, noise) if form in MEDIA else encoded(noise(24_000), 16000, *form)


ANY_FORM = st.sampled_from(FORMATS) | st.sampled_from(sorted(MEDIA))


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(ANY_FORM, st.floats(0, 1))
def test_a_cut_anywhere_gives_a_beginning_or_a_typed_error(form, share):
    data = whole_file(form)
    whole = decoded(data)

    try:
        part = decoded(data[: int(share * len(data))])
    except AudioError:
        return

    assert part.seconds <= whole.seconds + 0.1 * (form in MEDIA)
    if form in LOSSLESS:
        np.testing.assert_array_equal(part.samples, whole.samples[: len(part.samples)])


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(ANY_FORM, st.data())
def test_overwritten_bytes_give_audio_or_a_typed_error(form, data):
    damaged = bytearray(whole_file(form))
    for _ in range(data.draw(st.integers(1, 8))):
        # Headers are where damage bites.
        place = data.draw(st.integers(0, 600) | st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))

    try:
        audio = decoded(bytes(damaged))
    except AudioError:
        return

    assert np.isfinite(audio.samples).all()
    assert audio.seconds <= LIMITS.max_seconds


BEGINNINGS = [
    *(b"", b"RIFF\xff\xff\xff\xffWAVEfmt ", b"fLaC", b"ID3\x04\0\0\0\0\0\0", b"\xff\xfb\x90\x64", b"OggS"),
    *(b"\x1a\x45\xdf\xa3", b"\0\0\0\x20ftypM4A ", b"\xff\xf1\x50\x80\x2e\x7f", b"#!AMR\n"),
    *(b"RIFX\0\0\0\0WAVEfmt ", b"ID3\x04\0\x10", b"OggS" + bytes(24) + b"\x01vorbis"),
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(BEGINNINGS), st.binary(max_size=2000))
@example(b"OggS" + bytes(24), b"OpusHead")
def test_random_bytes_give_a_typed_error_or_audio(beginning, rest):
    with suppress(AudioError):
        decoded(beginning + rest)


@pytest.mark.parametrize("name", ["mp3", "mp3 without xing", "mp2", "aac", "transport stream"])
@pytest.mark.parametrize("cut", [777, 5_003, 9_999])
def test_a_stream_that_begins_within_a_frame_is_read_from_the_next(name, cut):
    whole = sample_of(name, lambda rate: noise(10 * rate))

    audio = decoded(whole[cut:])

    assert audio.container == MEDIA[name][4]
    assert 8.5 < audio.seconds < 10.1


@given(st.binary(min_size=100, max_size=4_000))
def test_bytes_that_mean_nothing_are_in_no_format(data):
    with pytest.raises(UnsupportedFormatError):
        decoded(b"\0" + data)


@pytest.mark.parametrize("flip", [1.0, -1.0, -0.98])
def test_two_channels_that_cancel_out_are_decoded(flip):
    mono = noise(16_000)
    two = np.stack([mono, flip * mono], axis=1)

    samples = decoded(encoded(two, 16_000, "WAV", "FLOAT")).samples

    assert np.sqrt(np.mean(samples**2)) > 0.9 * np.sqrt(np.mean(mono**2))


@pytest.mark.parametrize(
    "signs",
    [
        [1, -1, 0],
        [1, -1, 1, -1],
        [0.5, -1, 0.5],
        [1, np.r_[np.ones(40_000), -np.ones(24_000)]],  # within a block of libsndfile
        [np.r_[np.ones(24_000), -np.ones(40_000)], 1, 0],
    ],
)
@pytest.mark.parametrize("codec", ["FLOAT", "PCM_16"])
def test_channels_that_cancel_out_in_places_are_decoded(signs, codec):
    mono = noise(64_000)
    channels = np.stack([sign * mono for sign in signs], axis=1)

    samples = decoded(encoded(channels, 16_000, "WAV", codec)).samples

    halves = samples.reshape(8, -1)
    assert np.sqrt(np.mean(halves**2, axis=1)).min() > 0.5 * np.sqrt(np.mean(mono**2))


def test_two_channels_that_have_nothing_in_common_are_averaged():
    left, right = noise(16_000), noise(16_000)[::-1]

    samples = decoded(encoded(np.stack([left, right], axis=1), 16_000, "WAV", "FLOAT")).samples

    np.testing.assert_allclose(samples, (left + right) / 2, atol=1e-6)
