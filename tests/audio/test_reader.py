"""libsndfile gets the files that it reads correctly, FFmpeg the others."""

import io

import numpy as np
import pytest

from audio.decode import decode
from audio.limits import AudioLimits
from audio.mpeg import gives_its_length
from audio.reader import suits_libsndfile
from audio.sniff import container_of
from tests.audio.media_files import MEDIA, NO_XING, media, sample_of
from tests.audio.sound_files import LOSSLESS, encoded, tone

BY_LIBSNDFILE = [
    *LOSSLESS,
    ("OGG", "VORBIS"),
    ("MP3", "MPEG_LAYER_III"),
    ("WAV", "ULAW"),
    ("WAV", "GSM610"),
]


def mp3(options=None):
    return media(tone(440, 1, 44100), 44100, "mp3", "libmp3lame", options)


def is_for_libsndfile(data):
    file = io.BytesIO(data)
    suits = suits_libsndfile(file, container_of(file))
    assert file.tell() == 0
    return suits


@pytest.mark.parametrize(("container", "codec"), sorted(BY_LIBSNDFILE))
def test_files_that_libsndfile_reads_correctly_are_for_it(container, codec):
    assert is_for_libsndfile(encoded(tone(440, 1, 44100), 44100, container, codec))


@pytest.mark.parametrize("name", sorted(set(MEDIA) - {"mp3"}))
def test_other_files_are_for_ffmpeg(name):
    assert not is_for_libsndfile(sample_of(name, lambda rate: tone(440, 1, rate)))


@pytest.mark.parametrize(
    ("data", "gives"),
    [
        (mp3(), True),
        (mp3() + b"TAG" + bytes(125), True),
        (mp3({"id3v2_version": "0"}), True),
        (mp3() + mp3(), False),
        (mp3(NO_XING), False),
        (mp3() + mp3(NO_XING), False),
    ],
    ids=["xing", "tag at the end", "no tag", "joined", "no xing", "joined with one without"],
)
def test_an_mp3_gives_its_length_with_a_xing_tag_that_covers_it(data, gives):
    assert gives_its_length(io.BytesIO(data)) is gives


def test_a_large_picture_before_an_mp3_hides_nothing():
    picture = b"ID3\x03\0\0" + bytes([0, 8, 0, 10]) + bytes(8 << 14) + bytes(10)

    assert gives_its_length(io.BytesIO(picture + mp3({"id3v2_version": "0"})))


def vorbis(seed):
    return encoded(np.random.default_rng(seed).normal(0, 0.1, 16000).clip(-1, 1), 16000, "OGG", "VORBIS")


def test_joined_vorbis_is_for_ffmpeg_which_reads_all_of_it():
    data = vorbis(1) + vorbis(2)

    audio = decode(io.BytesIO(data), rate=16000, limits=AudioLimits())

    assert not is_for_libsndfile(data)
    assert audio.seconds == pytest.approx(2, abs=0.02)
