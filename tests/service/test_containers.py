"""Common containers and codecs, as Debian's ffmpeg writes them, have the words of the WAV."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from cli.scoring import Scorer
from tests.service.serving import form, steno_serve, wav
from tests.service.spoken import clips_of

RATE = 16_000
MOST_SECONDS = 7

pytestmark = [pytest.mark.slow, pytest.mark.program("ffmpeg"), pytest.mark.teacher, pytest.mark.speech]

# Also has a picture.
_PICTURE = "with a picture"

# Options of ffmpeg, by name. The container follows from the name's suffix unless `-f` gives it.
LOSSLESS = {
    "s16.wav": "-c:a pcm_s16le",
    "s24.wav": "-c:a pcm_s24le",
    "s32.wav": "-c:a pcm_s32le",
    "f32.wav": "-c:a pcm_f32le",
    "f64.wav": "-c:a pcm_f64le",
    "rf64.wav": "-c:a pcm_s16le -rf64 always",
    "s16.w64": "-c:a pcm_s16le",
    "s16.aiff": "-c:a pcm_s16be",
    "s16.au": "-c:a pcm_s16be",
    "s16.caf": "-c:a pcm_s16le",
    "alac.caf": "-c:a alac",
    "plain.flac": "-c:a flac",
    "flac.ogg": "-c:a flac",
    "alac.m4a": "-c:a alac",
    "flac.mkv": "-c:a flac",
    "pcm.mov": f"-c:a pcm_s16le {_PICTURE}",
}
# If no header has the length of the silence at both ends of an MP3, 44.1 kHz keep it short.
LOSSY = {
    "u8.wav": "-c:a pcm_u8",
    "ms-adpcm.wav": "-c:a adpcm_ms -block_size 256",  # of which the last is filled up
    "ima-adpcm.wav": "-c:a adpcm_ima_wav",
    "g722.wav": "-c:a g722",
    "mp3.wav": "-c:a libmp3lame -b:a 64k -ar 44100",
    "vorbis.ogg": "-c:a libvorbis",
    "opus.ogg": "-c:a libopus -b:a 24k",
    "opus-48k.opus": "-c:a libopus -b:a 32k -ar 48000 -ac 2",
    "opus.webm": "-c:a libopus -b:a 24k",
    "live.webm": "-c:a libopus -b:a 24k -live 1",
    "opus.mkv": "-c:a libopus -b:a 24k",
    "opus.mp4": "-c:a libopus -b:a 24k",
    "cbr.mp3": "-c:a libmp3lame -b:a 48k",
    "vbr.mp3": "-c:a libmp3lame -q:a 4",
    "cbr-no-xing.mp3": "-c:a libmp3lame -b:a 64k -ar 44100 -write_xing 0 -id3v2_version 0",
    "vbr-no-xing.mp3": "-c:a libmp3lame -q:a 4 -ar 44100 -write_xing 0 -id3v2_version 0",
    "stereo-44k.mp3": "-c:a libmp3lame -b:a 128k -ar 44100 -ac 2",
    "plain.mp2": "-c:a mp2 -b:a 64k",
    "aac.m4a": "-c:a aac -b:a 48k",
    "fragmented.mp4": "-c:a aac -b:a 48k -movflags frag_keyframe+empty_moov",
    "adts.aac": "-c:a aac -b:a 48k",
    "stream.ts": "-c:a aac -b:a 48k -f mpegts",
    "windows.wma": "-c:a wmav2 -b:a 48k",
    "dolby.ac3": "-c:a ac3 -b:a 96k -ar 48000",
    "film.mp4": f"-c:a aac -b:a 48k {_PICTURE}",
    "film.mkv": f"-c:a libvorbis {_PICTURE}",
    "film.avi": f"-c:a libmp3lame -b:a 64k -ar 44100 {_PICTURE}",
}
TELEPHONE = {
    "mu-law.wav": "-c:a pcm_mulaw -ar 8000",
    "a-law.wav": "-c:a pcm_alaw -ar 8000",
    "mu-law.au": "-c:a pcm_mulaw -ar 8000",
    "gsm.wav": "-c:a libgsm_ms -ar 8000",
    "g726.wav": "-c:a g726 -b:a 32k -ar 8000",
    "speex.ogg": "-c:a libspeex -ar 8000",
}


@dataclass(frozen=True)
class Answered:
    """The service's answer to a file."""

    status: int
    text: str
    seconds: float


@pytest.fixture(scope="module")
def recording(speech_dir):
    """Two short clips with many words, in a row: with few words, one error would be many points of the error rate."""
    clips = [clip for clip in clips_of(speech_dir, ("librispeech",)) if len(clip.samples) < MOST_SECONDS * RATE]
    clips.sort(key=lambda clip: len(clip.text.split()))
    return np.concatenate([clip.samples for clip in clips[-2:]])


@pytest.fixture(scope="module")
def answers(teacher, recording, tmp_path_factory):
    """Every file, sent to one server."""
    folder = tmp_path_factory.mktemp("media")
    (folder / "source.wav").write_bytes(wav(recording, subtype="PCM_16"))
    every = {**LOSSLESS, **LOSSY, **TELEPHONE}
    with ThreadPoolExecutor(4) as threads, steno_serve(folder / "log", "--model", str(teacher)) as service:

        def ask(name):
            if name in every:
                write(folder, name, every[name])
            fields = form((folder / name).read_bytes(), name="upload", response_format="verbose_json")
            response = service.client.post("/v1/audio/transcriptions", **fields)
            body = response.json()
            return Answered(response.status_code, body.get("text", str(body)), body.get("duration", 0.0))

        names = ["source.wav", *every]
        return dict(zip(names, threads.map(ask, names), strict=True))


def write(folder, name, options):
    """Have ffmpeg write the recording."""
    picture, end = [], []
    if options.endswith(_PICTURE):
        options = options.removesuffix(_PICTURE)
        picture, end = ["-f", "lavfi", "-i", "color=size=64x64:rate=5"], ["-shortest", "-c:v", "mpeg4"]
    command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-i", str(folder / "source.wav"), *picture]
    subprocess.run([*command, *options.split(), *end, str(folder / name)], check=True, timeout=60)


def excess_errors(answers, name):
    """Word errors against the WAV's transcript, as a share of its words."""
    return Scorer().score(answers["source.wav"].text, answers[name].text, 1.0).wer


@pytest.mark.parametrize(
    ("name", "most_errors"),
    [(name, most) for files, most in ((LOSSLESS, 0.0), (LOSSY, 0.10), (TELEPHONE, 0.30)) for name in files],
)
def test_a_file_has_the_words_of_the_wav_or_nearly_so(answers, recording, name, most_errors):
    assert answers[name].status == 200, answers[name].text
    assert answers[name].seconds == pytest.approx(len(recording) / RATE, abs=0.1)
    assert excess_errors(answers, name) <= most_errors
    if not most_errors:
        assert answers[name].text == answers["source.wav"].text
