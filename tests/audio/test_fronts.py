"""No process but a decoder parses what a stranger sent, apart from the first bytes, RIFF chunks and 16-bit PCM."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layering import files, imports, within

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = ("soundfile", "av")
READERS = ("audio.sound_file", "audio.packets")
# Who reads recordings of its own: to train, to measure, and to try a machine.
TRUSTING = ("training", "benchmarks", "service/engine/known_speech.py")
DECODERS = ("audio/decode.py", "audio/child.py")


def users(*modules):
    return {
        path.relative_to(ROOT).as_posix()
        for path in files()
        if any(within(name, module) for name in imports(path) for module in modules)
        and not path.relative_to(ROOT).as_posix().startswith(TRUSTING)
    }


def test_two_files_use_the_libraries_that_decode():
    assert users(*LIBRARIES) == {"audio/sound_file.py", "audio/packets.py"}


def test_decoding_happens_in_the_child():
    assert users(*READERS, "audio.decode", "audio.child") == set(DECODERS)


FRONT = """
import io, sys
import service.server, service.workers.process, service.engine.process
import cli.serve, cli.transcribe, cli.batch, bulk.file_transcripts
from audio.origin import Wanted
from audio.pool import DecodePool
with DecodePool() as pool:
    pool.decode_into(lambda *_: None, sys.stdin.buffer, Wanted(16000))
print(*({"soundfile", "_soundfile", "av"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_front_that_has_decoded_a_file_and_an_engine_have_none_of_them(tmp_path):
    from tests.audio.sound_files import encoded, tone

    (tmp_path / "clip.flac").write_bytes(encoded(tone(440, 1, 16000), 16000, "FLAC", "PCM_16"))
    with (tmp_path / "clip.flac").open("rb") as file:
        run = subprocess.run([sys.executable, "-c", FRONT], stdin=file, cwd=ROOT, capture_output=True, check=True)

    assert run.stdout == b"\n"
