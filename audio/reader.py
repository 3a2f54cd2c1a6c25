"""Which library reads a file: libsndfile, which is fast and small, or FFmpeg, which reads the rest."""

from typing import BinaryIO

from audio import mpeg, ogg, riff
from audio.sniff import HEAD_BYTES

# 0, where ``riff`` leaves the header to libsndfile; PCM, MS ADPCM, float, A-law, mu-law, IMA ADPCM, GSM, MP3, and the
# extensible tag, which refers to another.
_WAV_CODECS_OF_LIBSNDFILE = {0x0000, 0x0001, 0x0002, 0x0003, 0x0006, 0x0007, 0x0011, 0x0031, 0x0055, 0xFFFE}


def suits_libsndfile(file: BinaryIO, container: str) -> bool:
    """Return whether libsndfile reads ``file``, in this container (``audio.sniff``), correctly; seek back to the start.

    It is for the four most common containers, except where it is wrong: it shifts Ogg Opus by the pre-skip, does not
    read FLAC and Speex in Ogg, may end an MP3 without a Xing tag early, reads only the first of joined MP3s and Vorbis,
    and believes a WAV from a pipe that says 0 bytes.
    """
    match container:
        case "flac":
            is_right = True
        case "wav":
            header = riff.read_header(file)
            is_right = header.codec in _WAV_CODECS_OF_LIBSNDFILE and not header.hides_samples
        case "mp3":
            is_right = mpeg.gives_its_length(file)
        case "ogg":
            file.seek(0)
            is_right = b"\x01vorbis" in file.read(HEAD_BYTES) and not ogg.is_joined(file)
        case _:
            is_right = False
    file.seek(0)
    return is_right
