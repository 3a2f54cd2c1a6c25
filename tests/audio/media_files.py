"""Media files made by the tests with FFmpeg's writers."""

import io

import av
import numpy as np

LIVE = {"live": "1"}
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "1000000"}
NO_XING = {"write_xing": "0"}

# What people send: FFmpeg's format, codec and options, and a sample rate; then the container's name in audio.decode,
# how late the sound comes because no header tells the encoder's delay, and how much may follow it because none tells
# its padding, in milliseconds.
MEDIA = {
    "webm": ("webm", "libopus", {}, 48000, "webm", 0, 1),
    "live webm": ("webm", "libopus", LIVE, 48000, "webm", 0, 1),
    "matroska": ("matroska", "aac", {}, 48000, "webm", 0, 30),
    "m4a": ("ipod", "aac", {}, 48000, "mp4", 0, 22),
    "m4a 44.1 kHz": ("ipod", "aac", {}, 44100, "mp4", 0, 24),
    "fragmented mp4": ("mp4", "aac", FRAGMENTED, 48000, "mp4", 21.3, 43),
    "alac": ("ipod", "alac", {}, 44100, "mp4", 0, 0),
    "opus in mp4": ("mp4", "libopus", {}, 48000, "mp4", 0, 20),
    "mov": ("mov", "pcm_s16be", {}, 44100, "mp4", 0, 0),
    "3gp": ("3gp", "libopencore_amrnb", {}, 8000, "mp4", 9, 20),
    "ogg opus": ("ogg", "libopus", {}, 48000, "ogg", 0, 0),
    "aac": ("adts", "aac", {}, 44100, "aac", 23.2, 47),
    "amr": ("amr", "libopencore_amrnb", {}, 8000, "amr", 15, 40),
    "mp3": ("mp3", "libmp3lame", {}, 44100, "mp3", 0, 0),
    "mp3 without xing": ("mp3", "libmp3lame", NO_XING, 44100, "mp3", 25.1, 53),
    "mp2": ("mp2", "mp2", {}, 44100, "mp3", 10.9, 27),
    "aiff": ("aiff", "pcm_s16be", {}, 44100, "aiff", 0, 0),
    "au": ("au", "pcm_mulaw", {}, 8000, "au", 0, 0),
    "caf": ("caf", "pcm_s24le", {}, 48000, "caf", 0, 0),
    "flac in ogg": ("ogg", "flac", {}, 16000, "ogg", 0, 0),
    "ac-3": ("ac3", "ac3", {}, 48000, "ac3", 5.3, 32),
    "avi": ("avi", "libmp3lame", {}, 44100, "avi", 25.1, 53),
    "transport stream": ("mpegts", "aac", {}, 48000, "ts", 21.3, 43),
    "g722 in wav": ("wav", "g722", {}, 16000, "wav", 1, 0),
}


def media(
    samples, rate, form, codec, options=None, *, pictures=0, late=0.0, tags=(), change=lambda packet, second: packet
):
    """The bytes of a file that holds ``samples`` [n] or [channels, n], ``late`` seconds after the first of pictures.

    Packets of sound are changed, or left out; without samples it holds none.
    """
    file = io.BytesIO()
    with av.open(file, "w", format=form, options=options or {}) as container:
        container.metadata.update(tags)
        if pictures:
            video = container.add_stream("mpeg4", rate=10)
            video.width = video.height = 64
        if samples is not None:
            samples = np.atleast_2d(samples).astype(np.float32)
            layout = {1: "mono", 2: "stereo", 8: "7.1"}[len(samples)]
            frame = av.AudioFrame.from_ndarray(samples.T.reshape(1, -1), format="flt", layout=layout)
            frame.sample_rate, frame.pts = rate, round(late * rate)
            stream = container.add_stream(codec, rate=rate, layout=layout)
            if codec == "wmav2":  # it has no rate of bits by itself
                stream.bit_rate = 64_000
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        for one in (*[picture] * pictures, *[None] * bool(pictures)):
            for packet in video.encode(one):
                container.mux(packet)
        for packet in (*stream.encode(frame), *stream.encode(None)) if samples is not None else ():
            if (changed := change(packet, float(packet.pts * packet.time_base))) is not None:
                container.mux(changed)
    return file.getvalue()


def sample_of(name, samples_at):
    """A file of ``MEDIA``; ``samples_at`` makes the samples for a rate."""
    form, codec, options, rate, *_ = MEDIA[name]
    return media(samples_at(rate), rate, form, codec, options)
