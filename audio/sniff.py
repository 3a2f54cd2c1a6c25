"""Recognise a container by its first bytes, because names and MIME types of uploads are often wrong."""

import codecs
from typing import BinaryIO

from audio.errors import InvalidAudioError, UnsupportedFormatError
from audio.mpeg import SEARCHED_BYTES, after_id3, is_adts_header, is_frame_header, stream_within

# An MPEG transport stream needs the most: it is recognised by the first bytes of two packets.
HEAD_BYTES = 189
SUPPORTED = ("wav", "flac", "mp3", "ogg", "webm", "mp4", "aac", "amr", "aiff", "au", "caf", "wma", "ac3", "avi", "ts")

_W64 = b"riff\x2e\x91\xcf\x11"
# First bytes of files that people send by mistake.
_KNOWN_BUT_UNSUPPORTED = {
    b"\x1f\x43\xb6\x75": "a later part of a WebM recording, of which the beginning is missing",
    b"FLV": "Flash video",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "PDF",
    b"OggS": "Ogg with another codec than Vorbis, Opus, FLAC or Speex",
}
# EBML, which is WebM or Matroska.
_EBML = b"\x1a\x45\xdf\xa3"
# The first atom of MP4, M4A, 3GP and QuickTime.
_QUICKTIME_ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"moof", b"styp")
# Beginnings of the first packet of an Ogg stream with audio.
_OGG_CODECS = (b"OpusHead", b"\x01vorbis", b"\x7fFLAC", b"Speex   ")
_BEGINNINGS = {
    b"fLaC": "flac",
    b"#!AMR\n": "amr",
    b"#!AMR-WB\n": "amr",
    b".snd": "au",
    b"caff\0\x01": "caf",  # and its version: a text may say "caffeine"
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "wma",  # ASF
    b"\x0b\x77": "ac3",
    _EBML: "webm",
}
_TS_PACKET, _TS_SYNC = 188, b"G"


def container_of(file: BinaryIO) -> str:
    """Recognise the container of a seekable ``file`` by its content, as `sniff` does, and seek back to the start."""
    file.seek(0)
    container = sniff(file.read(SEARCHED_BYTES))
    if container == "mp3" and (tag_bytes := after_id3(file)):
        # The tag is for MP3, but segments of HTTP Live Streaming have it before AAC, and some programs before FLAC.
        file.seek(tag_bytes)
        behind = file.read(4)
        container = "flac" if behind == b"fLaC" else "aac" if is_adts_header(behind) else "mp3"
    file.seek(0)
    return container


def sniff(head: bytes) -> str:
    """Return the container, one of ``SUPPORTED``, of a file that begins with ``head``; mp3 if it has an ID3 tag.

    ``HEAD_BYTES`` are enough, except for a stream that begins in the middle of a frame.

    Raises:
        InvalidAudioError: if there are no bytes.
        UnsupportedFormatError: if the container is none of these; the message says what the file looks like, if known.
    """
    if not head:
        raise InvalidAudioError("the file is empty")
    for magic, container in _BEGINNINGS.items():
        if head.startswith(magic):
            return container
    if _is_wav(head):
        return "wav"
    if head.startswith(b"OggS") and any(codec in head for codec in _OGG_CODECS):
        return "ogg"
    # The byte order mark of UTF-16, as PowerShell writes it, looks like the header of a frame.
    is_text = head.startswith(codecs.BOM_UTF16_LE) and _is_text(head)
    if head.startswith(b"ID3") or (is_frame_header(head) and not is_text):
        return "mp3"
    # A text may say "The wide road".
    if head[4:8] in _QUICKTIME_ATOMS and not _is_text(head):
        return "mp4"
    if is_adts_header(head):
        return "aac"
    if head[:4] == b"FORM" and head[8:12] in {b"AIFF", b"AIFC"}:
        return "aiff"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    # A text may have a G in both places.
    if head[::_TS_PACKET][:2] == _TS_SYNC * 2 and not _is_text(head):
        return "ts"
    seen = next((name for magic, name in _KNOWN_BUT_UNSUPPORTED.items() if head.startswith(magic)), "")
    seen = seen or ("text" if _is_text(head) else "")
    if not seen and (stream := stream_within(head)):
        return stream
    looks = f"the file looks like {seen}" if seen else "the file is in no known audio format"
    raise UnsupportedFormatError(f"{looks}; supported: {', '.join(SUPPORTED)}")


def _is_wav(head: bytes) -> bool:
    return (head[:4] in {b"RIFF", b"RIFX", b"RF64"} and head[8:12] == b"WAVE") or head.startswith(_W64)


def _is_text(head: bytes) -> bool:
    encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        # Not final, because the head may end within a character.
        text = codecs.getincrementaldecoder(encoding)().decode(head, final=False)
    except UnicodeDecodeError:
        return False
    return text.strip() != "" and all(character.isprintable() or character.isspace() for character in text)
