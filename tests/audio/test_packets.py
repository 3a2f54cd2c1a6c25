"""FFmpeg's formats decode in full, at the right times, within the limits; damage is an error or a shorter clip."""

import io
import os

import numpy as np
import pytest

from audio.decode import decode
from audio.errors import AudioTooLongError, InvalidAudioError, UnsupportedFormatError
from audio.limits import AudioLimits
from tests.audio.media_files import MEDIA, media, sample_of
from tests.audio.sound_files import encoded, tone

LIMITS = AudioLimits()
SECONDS = 4
BURSTS = (0.5, 2.0, 3.5)


def bursts(rate):
    """Silence with a tone of 0.1 s at some places."""
    samples = tone(1000, SECONDS, rate)
    times = np.arange(len(samples)) / rate
    samples[~np.any([(times >= start) & (times < start + 0.1) for start in BURSTS], axis=0)] = 0
    return samples


def decoded(data, limits=LIMITS):
    return decode(io.BytesIO(data), rate=16000, limits=limits)


def lateness_ms(samples, places=BURSTS):
    """How late the middle of each burst's energy comes, in milliseconds."""
    return [lateness_of_burst_ms(samples[int(16000 * (at - 0.2)) : int(16000 * (at + 0.4))]) for at in places]


def lateness_of_burst_ms(around):
    energy = np.square(around, dtype=np.float64)
    return 1000 * ((energy * np.arange(len(around))).sum() / energy.sum() / 16000 - 0.25)


@pytest.fixture(scope="module")
def files():
    return {name: sample_of(name, bursts) for name in MEDIA}


@pytest.mark.parametrize("name", MEDIA)
def test_all_sound_is_decoded_at_its_time(name, files):
    *_, source_rate, container, late, tail = MEDIA[name]

    audio = decoded(files[name])

    # The same for the first burst and for the last: nothing drifts. AMR smears in time.
    assert lateness_ms(audio.samples) == pytest.approx([late] * 3, abs=3 if source_rate == 8000 else 1)
    assert -0.1 <= 1000 * (audio.seconds - SECONDS) <= tail + 0.1
    assert len(audio.samples) == pytest.approx(16000 * audio.seconds, abs=1)
    assert audio.samples.dtype == np.float32
    assert np.sqrt(2 * np.mean(audio.samples[16000 * 2 + 640 : 16000 * 2 + 1440] ** 2)) == pytest.approx(0.5, rel=0.1)
    assert (audio.container, audio.source_rate, audio.channels) == (container, source_rate, 1)
    assert not audio.truncated


def test_the_sound_of_a_film_is_decoded(files):
    audio = decoded(media(bursts(48000), 48000, "mp4", "aac", pictures=50))

    assert lateness_ms(audio.samples) == pytest.approx([0, 0, 0], abs=0.2)
    assert not audio.truncated


def test_a_film_without_sound_holds_no_audio():
    with pytest.raises(UnsupportedFormatError, match="holds no audio"):
        decoded(media(None, 0, "mp4", "", pictures=1))


def test_an_unsupported_codec_is_refused_by_name():
    with pytest.raises(UnsupportedFormatError, match="wavpack"):
        decoded(media(bursts(48000), 48000, "matroska", "wavpack"))


@pytest.mark.parametrize("rates", [(44100, 44100), (44100, 48000), (48000, 16000)])
def test_joined_mp3s_are_read_to_the_last(rates):
    data = b"".join(media(bursts(rate), rate, "mp3", "libmp3lame") for rate in rates)

    audio = decoded(data)

    # The Xing frame of the second file and its encoder's delay come out as silence.
    assert audio.seconds == pytest.approx(2 * SECONDS, abs=0.12)
    assert lateness_ms(audio.samples, BURSTS) == pytest.approx([0, 0, 0], abs=0.5)
    assert lateness_ms(audio.samples, [SECONDS + at for at in BURSTS]) == pytest.approx([50] * 3, abs=60)
    assert audio.source_rate == rates[0]


def test_a_wav_from_a_pipe_that_says_zero_bytes_is_read_to_its_end():
    data = bytearray(encoded(bursts(16000), 16000))
    data[4:8] = data[40:44] = bytes(4)

    audio = decoded(bytes(data))

    np.testing.assert_array_equal(audio.samples, decoded(encoded(bursts(16000), 16000)).samples)
    assert not audio.truncated


# Limits


def test_audio_over_the_limit_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.amr"
    frame = b"\x3c" + bytes(31)  # 20 ms at 12.2 kbit/s
    path.write_bytes(b"#!AMR\n" + frame * 50 * 3600)

    with path.open("rb", buffering=0) as file:
        with pytest.raises(AudioTooLongError, match="longer than 2 s"):
            decode(file, rate=16000, limits=AudioLimits(max_seconds=2))

        assert file.tell() < os.fstat(file.fileno()).st_size / 20


# Damage


@pytest.mark.parametrize("name", ["webm", "live webm", "fragmented mp4", "ogg opus", "aac", "amr", "mp3 without xing"])
def test_half_a_file_is_decoded_as_far_as_it_goes(name, files):
    noise = np.random.default_rng(0).normal(0, 0.1, 8 * MEDIA[name][3]).clip(-1, 1)
    form, codec, options, rate, *_ = MEDIA[name]
    data = media(noise, rate, form, codec, options)

    audio = decoded(data[: len(data) // 2])

    assert 2.5 < audio.seconds < 4.5
    assert audio.truncated or name != "webm"  # of these, only the header of webm says how long it is


def test_an_mp4_whose_index_was_cut_off_is_invalid(files):
    data = files["m4a"]

    with pytest.raises(InvalidAudioError):
        decoded(data[: len(data) - 200])


def test_damage_in_the_middle_costs_the_middle_only():
    samples = np.random.default_rng(0).normal(0, 0.1, SECONDS * 44100)
    data = bytearray(media(samples, 44100, "adts", "aac"))
    half = len(data) // 2
    data[half : half + 300] = bytes(300)

    audio = decoded(bytes(data))

    assert SECONDS - 0.3 < audio.seconds < SECONDS + 0.1


def test_a_transport_stream_in_which_another_one_begins_later_is_decoded_on(files):
    data = bytearray(files["transport stream"])
    first, *_, last = (at for at in range(0, len(data), 188) if data[at + 1 : at + 3] == b"\x41\x00")
    middle = next(
        at for at in range((first + last) // 2 // 188 * 188, len(data), 188) if data[at + 1 : at + 3] == b"\x41\x00"
    )
    data[middle + 2] = 0x7F  # a sound of its own, which no table names

    assert decoded(bytes(data)).seconds == pytest.approx(decoded(files["transport stream"]).seconds, abs=0.5)
