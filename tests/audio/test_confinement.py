"""What a file could do if it ran code in its decoder: nothing. Tried in the real child, by tests/audio/probe.py."""

import errno
import io
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from audio.child_process import ChildProcess, Confinement
from audio.confinement import environment
from audio.descriptor import unnamed_file
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pool import DecodePool, confinement_here
from tests.audio.probe import ATTEMPTS
from tests.audio.sound_files import encoded, tone

ROOT = Path(__file__).resolve().parent.parent.parent
REFUSED = {errno.EPERM, errno.EACCES}
# By the descriptor itself, which only reads; by limits; and what a process may do for itself.
FOR_ITSELF = {"write into its file": errno.EBADF, "shrink its file": errno.EINVAL}
# Without seccomp, Landlock still forbids what takes a path, TCP, and signals, but not these.
NEEDS_SECCOMP = {
    *("send a datagram", "open a raw socket", "make a pair of sockets", "stop the service"),
    *("have signals sent to the service", "limit the service", "leave its session", "choose another user"),
    *("raise its limits", "dump core", "make memory with a descriptor", "set up io_uring", "open a process"),
    *("take a descriptor of the service", "make a namespace", "fork", "start a thread", "connect to a local socket"),
    *("change the root", "bind a port", "have a path to the keys", "open its file to write"),  # a copy of its own
}


def tried(folder, monkeypatch, lang, new_file=io.BytesIO):
    """The outcomes of all attempts, and the names in the environment of the child."""
    for name in ("keys", "recording"):
        (folder / name).write_text("secret")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("LANG", lang)
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("STENO_WEBHOOK_SECRET", "secret")
    start = subprocess.Popen

    def starting(command, **options):
        return start([part.replace("audio.child", "tests.audio.probe") for part in command], **options)

    monkeypatch.setattr(subprocess, "Popen", starting)
    samples, got = unnamed_file(), bytearray()
    os.ftruncate(samples, 4096)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(folder / "socket"))
        local.listen()
        on = {"pid": os.getpid(), "samples": samples, "port": server.getsockname()[1], "folder": str(folder)}
        on |= {name: str(folder / name) for name in ("keys", "recording")}
        child = ChildProcess()
        try:
            child.wait_until_ready()
            with new_file() as file:
                file.write(json.dumps(on).encode())
                child.decode_into(lambda block, _: got.extend(block), file, "wav", Wanted(16000, AudioLimits()))
        finally:
            child.close()
    os.close(samples)
    values = np.frombuffer(got, np.float32).astype(int)
    assert sorted(path.name for path in folder.iterdir()) == ["keys", "recording", "socket"]
    assert (folder / "recording").read_text() == "secret"
    outcomes = dict(zip(ATTEMPTS, values, strict=False))
    return outcomes, bytes(values[len(ATTEMPTS) :].tolist()).decode().split(), child.unconfined


# A file is copied for the child, or it gets a descriptor.
@pytest.fixture(scope="module", params=[io.BytesIO, tempfile.TemporaryFile], ids=["copied", "by descriptor"])
def confined(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        return tried(tmp_path_factory.mktemp("folder"), monkeypatch, "C.UTF-8", request.param)


def test_every_layer_holds_here(confined):
    assert confined[2] == () == confinement_here()


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_decoder_can_do_nothing_but_decode(confined, attempt):
    assert confined[0][attempt] in {FOR_ITSELF.get(attempt, errno.EPERM), *REFUSED}


def test_a_decoder_knows_no_secret(confined):
    assert set(confined[1]) <= {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "OMP_NUM_THREADS", "LC_CTYPE"} | {
        "OPENBLAS_NUM_THREADS"
    }
    assert "HF_TOKEN" not in environment({"HF_TOKEN": "secret", "PATH": "/bin"})


def test_where_calls_are_not_filtered_no_path_leads_anywhere(tmp_path, monkeypatch):
    outcomes, _, unconfined = tried(tmp_path, monkeypatch, "--without-seccomp")

    assert unconfined == ("seccomp",)
    assert {name for name, outcome in outcomes.items() if outcome == 0} <= NEEDS_SECCOMP


HIDDEN = """
import os, subprocess, sys
from audio.confinement import hide_from_siblings
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
hide_from_siblings()
read, write = os.pipe()
os.close(os.open(f"/proc/self/fd/{read}", os.O_RDONLY))  # its own, as before
look = "import os, sys; open('/proc/' + sys.argv[1] + '/environ').read()"
sys.exit(subprocess.run([sys.executable, "-c", look, str(os.getpid())], capture_output=True).returncode)
"""


def test_a_process_that_hides_is_closed_to_others_of_its_user():
    run = subprocess.run([sys.executable, "-c", HIDDEN], cwd=ROOT, check=False, env=os.environ | {"STENO_SECRET": "x"})

    assert run.returncode == 1


def test_a_decoder_has_limits_is_killed_first_and_leads_a_session_of_its_own(children):
    file = io.BytesIO(encoded(tone(440, 1, 16000), 16000, "FLAC", "PCM_16"))
    with DecodePool(Confinement(memory_bytes=500 << 20, seconds=7)) as pool:
        pool.decode_into(lambda *_: None, file, Wanted(16000))
        (child,) = children()

        assert resource.prlimit(child, resource.RLIMIT_AS)[0] == 500 << 20
        assert resource.prlimit(child, resource.RLIMIT_CPU) == (24, 24)
        assert resource.prlimit(child, resource.RLIMIT_FSIZE)[0] == 0
        assert resource.prlimit(child, resource.RLIMIT_CORE)[0] == 0
        assert Path(f"/proc/{child}/oom_score_adj").read_text() == "1000\n"
        assert os.getsid(child) == os.getpgid(child) == child
