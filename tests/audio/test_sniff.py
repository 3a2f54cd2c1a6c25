"""A container is recognised by its bytes; the error for an unsupported one names it."""

import codecs

import pytest

from audio.errors import UnsupportedFormatError
from audio.sniff import SUPPORTED, sniff


@pytest.mark.parametrize(
    ("head", "container"),
    [
        (b"RIFX\0\0\0\x24WAVEfmt ", "wav"),
        (b"ID3\x04\0\0\0\0\x0f\x76TSSE", "mp3"),
        (b"\xff\xf3\x40\xc0", "mp3"),  # MPEG 2, layer III
        (b"\xff\xfd\x80\x04", "mp3"),  # MPEG 1, layer II
        (b"\xff\xfe\x48\x00\x12\xd8\x33\x33\x01\x00", "mp3"),  # MPEG 1, layer I with a checksum
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81", "webm"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "mp4"),
        (b"\0\0\0\x18ftyp3gp4", "mp4"),
        (b"\0\x01\x02\x03moov", "mp4"),
        (b"\0\0\0\x08wide\0\0\x10\0mdat", "mp4"),
        (b"\0\0\0\x08free\0\0\x10\0mdat", "mp4"),
        (b"\0\0\0\x10skip", "mp4"),
        (b"\xff\xf1\x50\x80\x2e\x7f", "aac"),
        (b"\xff\xf9\x50\x80\x2e\x7f", "aac"),
        (b"#!AMR\n\x3c", "amr"),
        (b"#!AMR-WB\n\x44", "amr"),
        (b"FORM\0\0\x10\0AIFF", "aiff"),
        (b"FORM\0\0\x10\0AIFC", "aiff"),
        (b".snd\0\0\0\x18", "au"),
        (b"caff\0\x01\0\0desc", "caf"),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9", "wma"),
        (b"\x0b\x77\x12\x34", "ac3"),
        (b"RIFF\0\0\0\0AVI LIST", "avi"),
        (b"\x47" + bytes(187) + b"\x47", "ts"),
        (b"OggS\0\x02" + bytes(22) + b"Speex   1.2", "ogg"),
        (b"OggS\0\x02" + bytes(22) + b"\x7fFLAC\x01\0", "ogg"),
    ],
)
def test_other_beginnings_of_supported_containers_are_recognised(head, container):
    assert sniff(head) == container


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x1f\x43\xb6\x75\x01\xff\xff\xff", "a later part of a WebM recording"),
        (b"The wide road to the sea", "text"),
        (b"Feelfree to call", "text"),
        (b"caffeine keeps you awake", "text"),
        (b"Good".ljust(188) + b"Good", "text"),  # where a transport stream has its sync bytes
        (b"ffconcat version 1.0\nfile '/etc/passwd'", "text"),
        (b"OggS\0\x02" + bytes(22) + b"\x80theora", "Ogg with another codec"),
        (b"\xef\xbb\xbf  <html>", "text"),
        (codecs.BOM_UTF16_LE + '{"error": "not found"}'.encode("utf-16-le"), "text"),
        (codecs.BOM_UTF16_BE + "Hello".encode("utf-16-be"), "text"),
        ("Überraschung, kein Ton, äää".encode()[:-1], "text"),  # cut within a character
        (b"PK\x03\x04\x14\0", "a ZIP archive"),
    ],
)
def test_an_error_names_the_format_and_the_supported_ones(head, name):
    with pytest.raises(UnsupportedFormatError) as caught:
        sniff(head)

    assert f"looks like {name}" in str(caught.value)
    assert ", ".join(SUPPORTED) in str(caught.value)


@pytest.mark.parametrize(
    "head", [b"\0" * 64, b"\xde\xad\xbe\xef" * 16, b"\xff", b"\xff\xff\xff\xff", b"RIFF\0\0\0\0ACON"]
)
def test_an_unknown_format_is_refused_without_a_guess(head):
    with pytest.raises(UnsupportedFormatError, match="in no known audio format"):
        sniff(head)
