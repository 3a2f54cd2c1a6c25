"""Tell a container by its first bytes: names and MIME types of uploads are often wrong."""

import codecs

from audio.errors import InvalidAudioError, UnsupportedFormatError
from audio.mpeg import is_adts_header, is_frame_header

HEAD_BYTES = 64
SUPPORTED = ("wav", "flac", "mp3", "ogg", "webm", "mp4", "aac", "amr")

_W64 = b"riff\x2e\x91\xcf\x11"
# What people send by mistake, by its first bytes.
_KNOWN_BUT_UNSUPPORTED = {
    b"\x1f\x43\xb6\x75": "a later part of a WebM recording, of which the beginning is missing",
    b"FORM": "AIFF",
    b".snd": "AU",
    b"caff": "CAF",
    b"\x30\x26\xb2\x75": "WMA",
    b"\x0b\x77": "AC-3",
    b"FLV": "Flash video",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "PDF",
}
# EBML, which is WebM or Matroska.
_EBML = b"\x1a\x45\xdf\xa3"
# The first atom of MP4, M4A, 3GP and QuickTime.
_QUICKTIME_ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"moof", b"styp")


def sniff(head: bytes) -> str:
    """Return the container, one of ``SUPPORTED``, of a file that begins with ``head`` (``HEAD_BYTES`` are enough).

    Raises:
        InvalidAudioError: if there are no bytes.
        UnsupportedFormatError: if it is anything else; the message says what it looks like.
    """
    if not head:
        raise InvalidAudioError("the file is empty")
    if _is_wav(head):
        return "wav"
    if head.startswith(b"fLaC"):
        return "flac"
    if head.startswith(b"OggS") and (b"OpusHead" in head or b"\x01vorbis" in head):
        return "ogg"
    if head.startswith(b"ID3") or is_frame_header(head):
        return "mp3"
    if head.startswith(_EBML):
        return "webm"
    if head[4:8] in _QUICKTIME_ATOMS:
        return "mp4"
    if is_adts_header(head):
        return "aac"
    if head.startswith((b"#!AMR\n", b"#!AMR-WB\n")):
        return "amr"
    seen = _name(head)
    looks = f"the file looks like {seen}" if seen else "the file is in no known audio format"
    raise UnsupportedFormatError(f"{looks}; supported: {', '.join(SUPPORTED)}")


def _is_wav(head: bytes) -> bool:
    return (head[:4] in {b"RIFF", b"RIFX", b"RF64"} and head[8:12] == b"WAVE") or head.startswith(_W64)


def _name(head: bytes) -> str | None:
    """Name what is not supported, for the error message."""
    for magic, name in _KNOWN_BUT_UNSUPPORTED.items():
        if head.startswith(magic):
            return name
    if head.startswith(b"OggS"):
        return "Ogg with another codec than Vorbis or Opus"
    return _name_of_text(head)


def _name_of_text(head: bytes) -> str | None:
    try:
        # Not final: the head may end within a character.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=False).lstrip()
    except UnicodeDecodeError:
        return None
    if text.startswith("<"):
        return "HTML or XML"
    if text.startswith(("{", "[")):
        return "JSON"
    if text and all(character.isprintable() or character.isspace() for character in text):
        return "text"
    return None
