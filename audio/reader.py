"""The choice of the library that reads a file."""

from enum import Enum
from typing import BinaryIO

from audio import mpeg, ogg, riff
from audio.sniff import HEAD_BYTES

# 0, where ``riff`` leaves the header to libsndfile; PCM, MS ADPCM, float, A-law, mu-law, IMA ADPCM, GSM, MP3, and the
# extensible tag, which refers to another.
_WAV_CODECS_OF_LIBSNDFILE = {0x0000, 0x0001, 0x0002, 0x0003, 0x0006, 0x0007, 0x0011, 0x0031, 0x0055, 0xFFFE}


class Reader(Enum):
    """The library: libsndfile is fast and small; FFmpeg reads the rest.

    16-bit PCM needs neither.
    """

    NUMPY = "NumPy"
    LIBSNDFILE = "libsndfile"
    FFMPEG = "FFmpeg"


def reader_of(file: BinaryIO, container: str) -> Reader:
    """Choose the library for a seekable ``file`` in this container (``audio.sniff``), and seek back to the start.

    libsndfile is for the four most common containers, except where it is wrong: it shifts Ogg Opus by
    the pre-skip, does not read FLAC and Speex in Ogg, may end an MP3 without a Xing tag early, reads only the first of
    joined MP3s and Vorbis, and believes a WAV from a pipe that says 0 bytes.
    """
    reader = _reader_of(file, container)
    file.seek(0)
    return reader


def _reader_of(file: BinaryIO, container: str) -> Reader:
    match container:
        case "flac":
            is_right = True
        case "wav":
            header = riff.read_header(file)
            if header.pcm:
                return Reader.NUMPY
            is_right = header.codec in _WAV_CODECS_OF_LIBSNDFILE and not header.hides_samples
        case "mp3":
            is_right = mpeg.gives_its_length(file)
        case "ogg":
            file.seek(0)
            is_right = b"\x01vorbis" in file.read(HEAD_BYTES) and not ogg.is_joined(file)
        case _:
            is_right = False
    return Reader.LIBSNDFILE if is_right else Reader.FFMPEG
