"""Read a media file with FFmpeg, packet by packet, in blocks. Only this file uses FFmpeg, through PyAV.

FFmpeg's demuxers are large and written for trusted files: untrusted ones belong in ``audio.pool``.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, BinaryIO

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.stream import Disposition

from audio.errors import InvalidAudioError, UnsupportedFormatError
from audio.limits import MOST_CHANNELS, AudioLimits, check_form
from audio.mixing import Mixer
from audio.resample import resampled
from audio.samples import Samples
from audio.sniff import SUPPORTED
from audio.source import SILENCE, Mix, check_track, every_channel, falls_short

if TYPE_CHECKING:
    from av.packet import Packet

_Timed = tuple[int, Samples]  # samples per second, and samples [frames, channels]

# FFmpeg's names of the containers of audio.sniff. The format is always given, because FFmpeg might guess a playlist.
_FORMATS = {"webm": "matroska", "mp4": "mov", "wma": "asf", "ts": "mpegts"}
_FORMATS |= {name: name for name in SUPPORTED if name not in _FORMATS}
# Containers that hold their length; of most others, FFmpeg only estimates it.
_HOLD_THEIR_LENGTH = {"webm", "mp4"}
# Those whose length is known before anything is decoded; of Ogg from the last granule.
_KNOW_THEIR_LENGTH = {"webm", "mp4", "ogg"}
# Containers whose timestamps say when a sound was: where a call was muted or packets are lost, they have a hole. Those
# of others are counted from bytes.
_CLOCKED = {"webm", "mp4", "ogg", "ts", "wma", "aac"}
_LATE = 0.1  # seconds; sooner, a hole is the jitter of a recorder
# A transport stream may begin its clock anew, as joined ones do.
_LONGEST_HOLE_OF_TS = 10.0
# FFmpeg's names of the decoders that recordings of speech need. The other hundreds would only be attack surface. None
# of these is for video, so pictures are never decoded.
_DECODERS = (
    *("aac", "ac3", "alac", "amrnb", "amrwb", "eac3", "flac", "mp1", "mp2", "mp3float", "opus", "speex", "vorbis"),
    *("adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "g722", "g726", "gsm", "gsm_ms", "pcm_alaw", "pcm_mulaw"),
    *("pcm_u8", "pcm_s8", "pcm_s16be", "pcm_s16le", "pcm_s24be", "pcm_s24le", "pcm_s32be", "pcm_s32le"),
    *("pcm_f32be", "pcm_f32le", "pcm_f64be", "pcm_f64le", "wmav1", "wmav2"),
)
# FFmpeg's sample formats, planar or not: type and full scale. Bytes are unsigned, around 128.
_SAMPLE_FORMATS = {
    "u8": ("u1", 128.0),
    "s16": ("i2", 2.0**15),
    "s32": ("i4", 2.0**31),
    "s64": ("i8", 2.0**63),
    "flt": ("f4", 1.0),
    "dbl": ("f8", 1.0),
}


class PacketSource:
    """An audio track of a file that FFmpeg reads; see ``audio.source.Source``.

    A packet that does not decode is skipped. ``rate`` is that of the first frame; later frames with another rate, as in
    joined files, are resampled. ``track`` is its number, from 1, of ``tracks``.
    """

    def __init__(self, container: InputContainer, name: str, limits: AudioLimits, track: int) -> None:
        self.track, self.tracks = track, len(container.streams.audio)
        self._stream = _audio_stream(container, track)
        self._limits = limits
        self._name = name
        claimed = _claimed_seconds(container, self._stream)
        self._claimed = claimed if name in _HOLD_THEIR_LENGTH else 0.0
        self.frames = 0
        self.broken = False
        frames = self._decoded(self._packets(container))
        first = next(frames, None)
        if first is None:
            raise InvalidAudioError("no audio could be decoded from the file: it is damaged, or it holds none")
        self.rate: int = first.sample_rate
        self.channels: int = first.layout.nb_channels
        if name in _KNOW_THEIR_LENGTH:
            limits.check_decoded(int(claimed * self.rate), self.rate, self.channels)
        self._blocks = self._timed(chain([first], frames), _beginning(container) if name in _CLOCKED else None)

    @classmethod
    @contextmanager
    def open(cls, file: BinaryIO, name: str, limits: AudioLimits, track: int | None = None) -> Iterator["PacketSource"]:
        """Open ``file`` at its start as the container ``name``.

        Without a ``track``, it is the default one or, if that does not decode or is silent, the first that does and is
        not.

        Raises:
            InvalidAudioError: if FFmpeg cannot read it, or nothing of it decodes.
            UnsupportedFormatError: if it has no audio, or its codec, channels or sample rate are not accepted.
            AudioTooLongError: if it says that it is too long.
            MemoryError: if its headers need too much memory. In later packets this counts as damage: sizes may be
                forged.
        """
        with _container(file, name) as container:
            tracks = _preferred(container)
            if track is not None or len(tracks) == 1:
                yield cls(container, name, limits, track or tracks[0])
                return
        chosen = cls._first_with_sound(file, name, limits, tracks[:MOST_CHANNELS])
        with _container(file, name) as container:
            yield cls(container, name, limits, chosen)

    @classmethod
    def _first_with_sound(cls, file: BinaryIO, name: str, limits: AudioLimits, tracks: list[int]) -> int:
        """Return the first track that is not silent, else the first that decodes: each is read to its first sound."""
        silent, failures = [], []
        for track in tracks:
            try:
                with _container(file, name) as container:
                    for block in cls(container, name, limits, track).blocks(Mixer()):
                        if np.abs(block).max(initial=0) > SILENCE:
                            return track
            except (InvalidAudioError, UnsupportedFormatError) as error:
                failures.append(error)
            else:
                silent.append(track)
        if not silent:
            raise failures[0]
        return silent[0]

    @property
    def seconds(self) -> float:
        """Length of what was decoded so far."""
        return self.frames / self.rate

    @property
    def ended_early(self) -> bool:
        """Whether the last packet or the demuxer failed, or the container says that it is longer."""
        return self.broken or falls_short(self._claimed, self.seconds)

    def blocks(self, mix: Mix) -> Iterator[Samples]:
        """Yield blocks of about a second, as ``Source.blocks`` does.

        Raises:
            UnsupportedFormatError: if a later frame's channels or sample rate are outside the limits, or ``mix`` keeps
                channels apart and their number changes.
        """
        for rate, part in groupby(self._blocks, key=itemgetter(0)):
            for block in resampled(self._mixed(map(itemgetter(1), part), rate, mix), rate, self.rate):
                self.frames += len(block)
                self._limits.check_decoded(self.frames, self.rate, self.channels)
                yield block

    def _mixed(self, samples: Iterable[Samples], rate: int, mix: Mix) -> Iterator[Samples]:
        """Yield samples mixed in blocks, because mixing frames of 20 ms one by one takes as long as decoding them."""
        for channels, alike in groupby(samples, key=lambda block: block.shape[1]):
            if mix is every_channel:
                check_same_channels(self.channels, channels)
            yield from map(mix, _joined(alike, rate))

    def _timed(self, frames: Iterable[AudioFrame], clock: float | None) -> Iterator[_Timed]:
        """Yield the frames' samples, and silence where the container's clock has a hole.

        ``clock`` is the second at which the recording begins; None for that of the first frame.
        """
        for frame in frames:
            rate, channels = frame.sample_rate, frame.layout.nb_channels
            begins = frame.time if self._name in _CLOCKED else None
            if begins is not None:
                late = 0.0 if clock is None else begins - clock
                if self._name == "ts" and late > _LONGEST_HOLE_OF_TS:
                    late = 0.0
                elif late > _LATE:
                    yield from self._silence(late, rate, channels)
                if clock is None or abs(late) > _LATE or late == 0.0:
                    clock = begins
            if clock is not None:
                clock += frame.samples / rate
            yield rate, _samples(frame)

    def _silence(self, seconds: float, rate: int, channels: int) -> Iterator[_Timed]:
        """Yield silence, as far as a recording may be long: timestamps may be forged."""
        left = round(min(seconds, self._limits.max_seconds + 1) * rate)
        while left > 0:
            size = min(left, rate)
            yield rate, np.zeros((size, channels), np.float32)
            left -= size

    def _packets(self, container: InputContainer) -> "Iterator[Packet[AudioStream]]":
        while True:
            try:
                yield from container.demux(self._stream)
            except IndexError:  # a packet of a stream that begins in the middle, which PyAV does not know
                continue
            except av.FFmpegError:
                self.broken = True
            return

    def _decoded(self, packets: "Iterable[Packet[AudioStream]]") -> Iterator[AudioFrame]:
        for packet in packets:
            try:
                frames = self._stream.codec_context.decode(packet)
            except av.FFmpegError:
                self.broken = True
                continue
            for frame in frames:
                check_form(frame.layout.nb_channels, frame.sample_rate)
                self.broken = False
                yield frame


def check_same_channels(before: int, now: int) -> None:
    """Raise UnsupportedFormatError if channels that are to be kept apart become more or fewer within a file."""
    if now != before:
        raise UnsupportedFormatError(f"the file has {before} channels and later {now}: they cannot be kept apart")


def tracks_of(file: BinaryIO, name: str) -> int:
    """Return the number of audio tracks of a file; raise InvalidAudioError if FFmpeg cannot read it."""
    with _container(file, name) as container:
        return len(container.streams.audio)


@contextmanager
def _container(file: BinaryIO, name: str) -> Iterator[InputContainer]:
    file.seek(0)
    options = {"codec_whitelist": ",".join(_DECODERS), "protocol_whitelist": ""}
    try:
        container = av.open(file, mode="r", format=_FORMATS[name], container_options=options, metadata_errors="replace")
    except MemoryError:
        raise
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidAudioError(f"the file cannot be decoded: {reason}") from error
    with container:
        yield container


def _preferred(container: InputContainer) -> list[int]:
    """Return the numbers of the audio tracks, from 1; those that are marked as default first."""
    audio = container.streams.audio
    if not audio:
        raise UnsupportedFormatError("the file holds no audio")
    return sorted(range(1, len(audio) + 1), key=lambda track: not audio[track - 1].disposition & Disposition.default)


def _audio_stream(container: InputContainer, track: int) -> AudioStream:
    audio = container.streams.audio
    check_track(track, len(audio))
    stream = audio[track - 1]
    decoder = stream.codec_context.name if stream.codec_context else "unknown"
    if decoder not in _DECODERS:
        raise UnsupportedFormatError(f"the codec of the audio, {decoder}, is not supported")
    stream.codec_context.thread_count = 1  # each file has one thread, and several are decoded at the same time
    return stream


def _beginning(container: InputContainer) -> float | None:
    """Return when a film begins, or what has several tracks; None for others, which begin with their first sound."""
    is_film = len(container.streams.audio) > 1 or any(
        not stream.disposition & Disposition.attached_pic for stream in container.streams.video
    )
    return container.start_time / av.time_base if is_film and container.start_time is not None else None


def _claimed_seconds(container: InputContainer, stream: AudioStream) -> float:
    """Return the length that the file says; 0 where it says none, or its length may be that of a longer video."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None and len(container.streams) == 1:
        return container.duration / av.time_base
    return 0.0


def _samples(frame: AudioFrame) -> Samples:
    """Return a frame's samples [frames, channels], whatever their format."""
    channels = frame.layout.nb_channels
    kind, full_scale = _SAMPLE_FORMATS[frame.format.name.removesuffix("p")]
    if frame.format.is_planar:
        # Not to_ndarray(): it counts planes up to a null pointer, which is missing after the eighth plane.
        planes = frame.planes[:channels]
        block = np.stack([np.frombuffer(memoryview(plane), kind, frame.samples) for plane in planes], axis=1)
    else:
        block = np.frombuffer(memoryview(frame.planes[0]), kind, frame.samples * channels).reshape(-1, channels)
    if kind == "f4" and frame.format.is_planar:
        return block
    offset = full_scale if kind == "u1" else 0.0
    scaled: Samples = (block.astype(np.float32) - np.float32(offset)) / np.float32(full_scale)
    return scaled


def _joined(blocks: Iterable[Samples], size: int) -> Iterator[Samples]:
    """Yield the same samples in blocks of ``size`` or a little more, because each block has a fixed cost."""
    held: list[Samples] = []
    count = 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count >= size:
            yield np.concatenate(held)
            held, count = [], 0
    if held:
        yield np.concatenate(held)
