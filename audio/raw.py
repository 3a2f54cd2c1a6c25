"""Raw PCM: samples without a header, whose format the sender must give."""

from dataclasses import dataclass
from email.message import Message
from typing import Self


@dataclass(frozen=True, slots=True)
class RawFormat:
    """The format of raw 16-bit PCM: channels, samples per second, and byte order."""

    channels: int
    rate: int
    big_endian: bool = False

    @classmethod
    def of_media_type(cls, media_type: str) -> Self | None:
        """Read `audio/pcm;rate=16000;channels=1` (little-endian) or `audio/l16;...` (big-endian, RFC 2586).

        `audio/l16` has one channel by default. Returns None for other types and where rate or channels are missing;
        then the content decides.
        """
        kind = media_type.partition(";")[0].strip().lower()
        if kind not in {"audio/pcm", "audio/l16"}:
            return None
        message = Message()
        message["content-type"] = media_type
        usual = "1" if kind == "audio/l16" else ""
        rate, channels = str(message.get_param("rate", "")), str(message.get_param("channels", usual))
        if not (_is_number(rate) and _is_number(channels)):
            return None
        return cls(channels=int(channels), rate=int(rate), big_endian=kind == "audio/l16")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
