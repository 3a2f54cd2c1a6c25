"""Files of some kilobytes that crash, fill memory, or take a quarter of an hour."""

import contextlib
import io
import os
import resource
import struct
import tempfile
from pathlib import Path

import pytest

from audio.errors import AudioTooLongError, DecoderCrashedError, InvalidAudioError
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pool import DecodePool
from tests.audio.sound_files import encoded, tone
from tests.soak.processes import decoders

CLIP = encoded(tone(440, 1, 16000), 16000, "FLAC", "PCM_16")
LIMITS = AudioLimits()
MIB = 1 << 20
DATA = Path(__file__).resolve().parent.parent / "data" / "hostile"


def vorbis(books):
    """An Ogg Vorbis file with so many more code books, each of 2^19 words, or a single one of 2^20."""
    return (DATA / f"vorbis-{books}-books.ogg").read_bytes()


def mp4_with_times(count):
    """An MP4 of 7 KB in which one entry says that so many samples have the same length (ISO 14496-12, 8.6.1)."""

    def box(name, *parts):
        body = b"".join(parts)
        return struct.pack(">I4s", 8 + len(body), name) + body

    entry = box(b"ulaw", bytes(6), struct.pack(">H", 1), bytes(8), struct.pack(">HHIHH", 1, 16, 0, 16000, 0))
    table = box(
        b"stbl",
        box(b"stsd", struct.pack(">II", 0, 1), entry),
        box(b"stts", struct.pack(">IIII", 0, 1, count, 2)),
        box(b"stsz", struct.pack(">III", 0, 1, count)),
        box(b"stsc", struct.pack(">IIIII", 0, 1, 1, count, 1)),
        box(b"stco", struct.pack(">III", 0, 1, 1000)),
    )
    media = box(b"mdia", box(b"mdhd", struct.pack(">IIIIII", 0, 0, 0, 16000, count, 0)))
    handler = box(b"hdlr", struct.pack(">II4s", 0, 0, b"soun"), bytes(13))
    sound = box(b"minf", box(b"smhd", bytes(8)), table)
    track = box(b"trak", box(b"tkhd", bytes(84)), box(b"mdia", media[8:], handler, sound))
    moov = box(b"moov", box(b"mvhd", bytes(100)), track)
    return box(b"ftyp", b"M4A \0\0\0\0") + moov + box(b"mdat", bytes(7000))


def checksum(data, polynomial, width):
    value = 0
    for byte in data:
        value ^= byte << width - 8
        for _ in range(8):
            value = value << 1 ^ (polynomial if value >> width - 1 else 0)
        value &= (1 << width) - 1
    return value.to_bytes(width // 8, "big")


def long_flac(seconds):
    """A FLAC file of silence, eight channels at 384 kHz: 36 bytes for each 65,535 samples of all (RFC 9639)."""
    rate, size = 384_000, 65_535
    form = rate << 44 | 7 << 41 | 15 << 36 | seconds * rate
    info = struct.pack(">HH", size, size) + bytes(6) + form.to_bytes(8, "big") + bytes(16)
    frames = [b"fLaC\x80\0\0\x22" + info]
    for number in range(seconds * rate // size):
        head = b"\xff\xf8\x70\x78" + chr(number).encode("utf-8", "surrogatepass") + struct.pack(">H", size - 1)
        head += checksum(head, 0x107, 8) + bytes(24)
        frames.append(head + checksum(head, 0x18005, 16))
    return b"".join(frames)


@pytest.fixture(scope="module")
def pool():
    with DecodePool(keeps_spare=True) as pool:
        yield pool


def decoded(pool, file, limits=LIMITS):
    return pool.decode_into(lambda *_: None, file, Wanted(16000, limits))


def peak_bytes():
    """The most memory that a child of the pool ever had."""
    peaks = []
    for child in decoders(os.getpid()):
        status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
        peaks += [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks)


def test_code_books_that_overflow_the_stack_cost_two_children_once():
    file, losses = vorbis(1), []
    with DecodePool(on_loss=lambda: losses.append(1)) as pool:
        for _ in range(2):  # the second time, no child gets it
            with pytest.raises(DecoderCrashedError, match="crashed"):
                decoded(pool, io.BytesIO(file))

            assert len(losses) == 2
        assert decoded(pool, io.BytesIO(CLIP)).seconds == 1


@pytest.mark.parametrize("books", [5, pytest.param(221, marks=pytest.mark.slow)])
def test_code_books_fill_the_memory_of_a_child_alone(pool, books):
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    with contextlib.suppress(InvalidAudioError):
        decoded(pool, io.BytesIO(vorbis(books)))

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < own + 30 * MIB
    assert peak_bytes() < 512 * MIB


def test_an_index_of_one_line_fills_no_memory(pool):
    with pytest.raises(InvalidAudioError):
        decoded(pool, io.BytesIO(mp4_with_times(20_000_000)))

    assert peak_bytes() < 512 * MIB
    assert decoded(pool, io.BytesIO(mp4_with_times(2000)), AudioLimits(min_seconds=0)).container == "mp4"


def test_what_takes_long_to_decode_is_too_long(pool):
    with pytest.raises(AudioTooLongError, match="8 channels at 384000 Hz"):
        decoded(pool, io.BytesIO(long_flac(20)), AudioLimits(max_seconds=20))

    assert decoded(pool, io.BytesIO(long_flac(1)), AudioLimits(max_seconds=20)).channels == 8


def test_a_large_tag_takes_no_memory(pool):
    size = 200 * MIB
    tag = b"ID3\x04\0\0" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    with tempfile.TemporaryFile() as file:
        file.write(tag)
        file.seek(size, os.SEEK_CUR)
        file.write(encoded(tone(440, 1, 16000), 16000, "MP3", "MPEG_LAYER_III"))
        before = peak_bytes()

        assert decoded(pool, file).seconds == pytest.approx(1, abs=0.1)

    assert peak_bytes() <= max(before, 100 * MIB)
