"""Of a file with several audio tracks, the one that says something is decoded, and what was left out is known."""

import io

import av
import numpy as np
import pytest
from av.stream import Disposition

from audio.channels import Channels
from audio.decode import decode, decode_into
from audio.errors import AudioTooLongError, UnsupportedFormatError
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pool import DecodePool
from tests.audio.sound_files import encoded, tone

LIMITS = AudioLimits()
LOW, HIGH, NOTHING = tone(300, 1.0, 48_000), tone(2000, 1.5, 48_000), np.zeros(48_000, np.float32)


def film(*tracks, form="matroska", codec="libopus", default=None, late=None):
    """A file with these tracks of sound at 48 kHz; ``default`` is the number of the one that is marked so."""
    file = io.BytesIO()
    with av.open(file, "w", format=form) as container:
        streams = [container.add_stream(codec, rate=48_000, layout="mono") for _ in tracks]
        for number, stream in enumerate(streams, 1):
            stream.disposition = Disposition.default if number == default else Disposition(0)
        packets = []
        for stream, samples in zip(streams, tracks, strict=True):
            frame = av.AudioFrame.from_ndarray(samples.astype(np.float32)[None, :], format="flt", layout="mono")
            frame.sample_rate, frame.pts = 48_000, 0
            packets += [*stream.encode(frame), *stream.encode(None)]
        for packet in sorted(packets, key=lambda packet: packet.pts * packet.time_base):
            container.mux(packet)
    return file.getvalue()


def pitch(samples):
    """The strongest frequency in Hz, of samples at 16 kHz."""
    return np.abs(np.fft.rfft(samples)).argmax() * 16_000 / len(samples)


def heard(data, **asked):
    """What is decoded: its pitch, its track, and of how many."""
    samples = bytearray()
    origin = decode_into(lambda block, _: samples.extend(block), io.BytesIO(data), Wanted(16_000, **asked))
    return round(pitch(np.frombuffer(samples, np.float32)), -2), origin.track, origin.tracks


@pytest.mark.parametrize(
    ("tracks", "default", "expected"),
    [
        ((LOW, HIGH), None, (300, 1, 2)),
        ((NOTHING, HIGH), None, (2000, 2, 2)),
        ((NOTHING, NOTHING, LOW, HIGH), None, (300, 3, 4)),
        ((LOW, HIGH), 2, (2000, 2, 2)),
        ((LOW, NOTHING), 2, (300, 1, 2)),
    ],
)
def test_the_default_track_is_taken_else_the_first_that_is_not_silent(tracks, default, expected):
    assert heard(film(*tracks, default=default)) == expected
    if default is None:
        assert heard(film(*tracks, form="mpegts")) == expected


def test_silence_on_all_tracks_is_silence():
    audio = decode(io.BytesIO(film(NOTHING, NOTHING)), rate=16_000, limits=LIMITS)

    assert (audio.track, audio.tracks) == (1, 2)
    assert not audio.samples.any()


def test_a_track_whose_codec_is_unknown_is_passed_over():
    data = film(LOW, HIGH).replace(b"A_OPUS", b"A_APAC", 1)

    assert heard(data) == (2000, 2, 2)
    with pytest.raises(UnsupportedFormatError, match="codec"):
        heard(data, track=1)


def test_a_track_is_chosen_by_its_number():
    data = film(LOW, HIGH)

    assert heard(data, track=2) == (2000, 2, 2)
    with pytest.raises(UnsupportedFormatError, match="has 2 audio tracks; there is no track 3"):
        heard(data, track=3)


@pytest.mark.parametrize(("form", "subtype"), [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_16")])
def test_a_file_of_sound_has_one_track(form, subtype):
    data = encoded(tone(300, 1, 16_000), 16_000, form, subtype)
    with DecodePool() as pool:
        for decoder in (decode_into, pool.decode_into):
            assert decoder(lambda *_: None, io.BytesIO(data), Wanted(16_000, track=1)).tracks == 1
            with pytest.raises(UnsupportedFormatError, match="has one audio track; there is no track 2"):
                decoder(lambda *_: None, io.BytesIO(data), Wanted(16_000, track=2))


def test_tracks_are_channels_where_channels_are_kept_apart():
    data = film(LOW, NOTHING, HIGH)
    with DecodePool() as pool, Channels(16_000, 60.0, are_apart=True) as channels:
        origin = pool.decode_into(channels.append, io.BytesIO(data), Wanted(16_000, by_channel=True))

        assert (origin.channels, origin.track, origin.tracks) == (3, 0, 3)
        assert origin.seconds == pytest.approx(1.5, abs=0.05)
        assert [channels.is_silent(number) for number in range(3)] == [False, True, False]
        assert [round(pitch(one.read(0, len(one))), -2) for one in channels][::2] == [300, 2000]
        assert heard(data, by_channel=True, track=3) == (2000, 3, 3)


def test_more_tracks_than_channels_may_be_are_no_channels():
    with pytest.raises(UnsupportedFormatError, match="9 channels"):
        heard(film(*[LOW] * 9), by_channel=True)


def test_a_silent_track_is_read_no_longer_than_a_recording_may_be():
    with pytest.raises(AudioTooLongError):
        decode(io.BytesIO(film(np.zeros(480_000), LOW)), rate=16_000, limits=AudioLimits(max_seconds=5))
