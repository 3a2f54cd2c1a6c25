"""Times follow the container's clock; tags decide nothing."""

import io
from itertools import pairwise

import av
import numpy as np
import pytest

from audio.decode import decode
from audio.errors import AudioTooLongError
from audio.limits import AudioLimits
from tests.audio.media_files import media
from tests.audio.sound_files import encoded
from tests.audio.test_hostile_files import checksum
from tests.audio.test_packets import bursts, lateness_ms

# FFmpeg's format, codec, rate; how late the last burst may be. An Ogg page says where it ends, so a hole is noticed at
# the next one.
CLOCKED = {
    "webm": ("webm", "libopus", 48000, 30),
    "matroska": ("matroska", "aac", 48000, 30),
    "m4a": ("ipod", "aac", 48000, 30),
    "opus in mp4": ("mp4", "libopus", 48000, 30),
    "ogg opus": ("ogg", "libopus", 48000, 30),
    "ogg flac": ("ogg", "flac", 48000, 30),
    "transport stream": ("mpegts", "aac", 48000, 60),
    "wma": ("asf", "wmav2", 44100, 60),
}
PAGES = {"ogg": {"page_duration": "200000"}}


def decoded(data, limits=AudioLimits()):  # noqa: B008  # it cannot change
    return decode(io.BytesIO(data), rate=16000, limits=limits)


def missing(packet, second):
    return None if 2.2 <= second < 3.0 else packet


@pytest.mark.parametrize("name", CLOCKED)
def test_missing_packets_are_silence_of_their_length(name):
    form, codec, rate, tolerated = CLOCKED[name]
    whole, holed = (
        decoded(media(bursts(rate), rate, form, codec, PAGES.get(form), change=change))
        for change in (lambda one, _: one, missing)
    )

    assert holed.seconds == pytest.approx(whole.seconds, abs=0.1)
    assert lateness_ms(holed.samples) == pytest.approx(lateness_ms(whole.samples), abs=tolerated)


@pytest.mark.parametrize(("form", "codec"), [("matroska", "libopus"), ("mp4", "aac"), ("mov", "aac")])
def test_a_film_begins_with_its_picture(form, codec):
    audio = decoded(media(bursts(48000), 48000, form, codec, late=3.0, pictures=20))

    assert audio.seconds == pytest.approx(7, abs=0.1)
    assert lateness_ms(audio.samples, [3.5, 5.0, 6.5]) == pytest.approx([0] * 3, abs=60)


def test_a_recording_without_a_picture_begins_with_its_sound():
    audio = decoded(media(bursts(48000), 48000, "webm", "libopus", late=1000.0))

    assert audio.seconds == pytest.approx(4, abs=0.1)


def test_a_forged_time_is_bounded_by_the_longest_recording():
    def leap(packet, second):
        if second > 2:
            packet.pts = packet.dts = packet.pts + 10**7
        return packet

    data = media(bursts(48000), 48000, "webm", "libopus", change=leap)

    with pytest.raises(AudioTooLongError):
        decoded(data, AudioLimits(max_seconds=60))


def damage(packet, second):
    """A packet whose bytes are noise, of the same length."""
    if 0.8 <= second < 1.8:
        noise = av.Packet(b"\xff" * packet.size)
        for name in ("pts", "dts", "duration", "time_base", "stream"):
            setattr(noise, name, getattr(packet, name))
        return noise
    return packet


@pytest.mark.parametrize(("form", "codec"), [("ipod", "aac"), ("matroska", "aac"), ("webm", "libopus")])
def test_damaged_packets_take_their_time(form, codec):
    audio = decoded(media(bursts(48000), 48000, form, codec, change=damage))

    assert audio.seconds == pytest.approx(4, abs=0.15)
    assert lateness_ms(audio.samples)[2] == pytest.approx(0, abs=60)


@pytest.mark.parametrize(
    ("form", "codec"),
    [
        *(("ipod", "aac"), ("mov", "pcm_s16be"), ("webm", "libopus"), ("avi", "mp3"), ("aiff", "pcm_s16be")),
        *(("caf", "pcm_s16be"), ("ogg", "libopus"), ("ogg", "flac"), ("flac", "flac"), ("wav", "pcm_s24le")),
        *(("mp3", "mp3"), ("asf", "wmav2"), ("mpegts", "aac")),
    ],
)
def test_tags_that_are_not_utf_8_decide_nothing(form, codec):
    tags = {"service_name" if form == "mpegts" else "title": "MARK" * 4}
    data = media(bursts(48000), 48000, form, codec, tags=tags.items())
    assert b"MARK" in data or "MARK".encode("utf-16-le") in data

    tagged = data.replace(b"MARK", b"\xe9\xfc\xff\x80").replace("MARK".encode("utf-16-le"), b"\x00\xd8" * 4)

    if form in ("ogg", "wav"):  # a checksum would not be right; a pipe says no size
        tagged = with_checksums(tagged) if form == "ogg" else tagged[:4] + bytes(4) + tagged[8:]
    assert decoded(tagged).seconds == pytest.approx(decoded(data).seconds)


def with_checksums(data):
    """Ogg pages with the right checksums."""
    starts = [n for n in range(len(data)) if data.startswith(b"OggS", n)]
    pages = []
    for start, stop in pairwise([*starts, len(data)]):
        page = bytearray(data[start:stop])
        page[22:26] = bytes(4)
        page[22:26] = checksum(page, 0x104C11DB7, 32)[::-1]
        pages.append(bytes(page))
    return b"".join(pages)


def test_a_list_of_tags_in_another_encoding_is_passed_over_in_a_wav():
    data = encoded(bursts(16000), 16000)
    info = b"LIST" + (16).to_bytes(4, "little") + b"INFOINAM" + (4).to_bytes(4, "little") + b"\xe9\xfc\xff\0"
    piped = data[:36] + info + data[36:40] + bytes(4) + data[44:]

    assert decoded(piped).seconds == pytest.approx(4)


def noise(seconds):
    return np.random.default_rng(0).normal(0, 0.1, 16000 * seconds)


def flac_of(seconds):
    data = bytearray(encoded(bursts(16000), 16000, "FLAC", "PCM_16"))
    data[21] &= 0xF0
    data[22:26] = (seconds * 16000).to_bytes(4, "big")
    return bytes(data)


def ogg_of(seconds, data):
    last = data.rindex(b"OggS")
    rate = 48000 if b"OpusHead" in data else 16000
    return with_checksums(data[: last + 6] + (seconds * rate).to_bytes(8, "little") + data[last + 14 :])


def mp4_of(seconds):
    data = bytearray(media(bursts(16000), 16000, "ipod", "aac"))
    at = data.index(b"stts") + 12
    frames = int.from_bytes(data[at : at + 4], "big")
    data[at + 4 : at + 8] = (seconds * 16000 // frames).to_bytes(4, "big")
    for box, place, rate in ((b"mdhd", 16, 16000), (b"mvhd", 16, 1000), (b"elst", 8, 1000)):
        at = data.index(box) + 4 + place
        data[at : at + 4] = (seconds * rate).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(flac_of(50), id="flac"),
        pytest.param(ogg_of(50, encoded(noise(4), 16000, "OGG", "VORBIS")), id="vorbis"),
        pytest.param(ogg_of(50, media(bursts(48000), 48000, "ogg", "libopus")), id="opus"),
        pytest.param(mp4_of(50), id="mp4"),
    ],
)
def test_what_says_that_it_is_too_long_is_not_decoded_first(data):
    """Each holds four seconds, and says fifty."""
    with pytest.raises(AudioTooLongError, match="longer than 20 s"):
        decoded(data, AudioLimits(max_seconds=20))

    assert decoded(data, AudioLimits(max_seconds=60)).seconds < 60
