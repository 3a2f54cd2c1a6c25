"""The README's runnable blocks are run, as they stand."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- runnable: (\w+) -->\n```bash\n(.*?)```", README, re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [script for found, script in BLOCKS if found == kind]


@pytest.fixture(scope="module")
def environment(golden):
    """MODEL and FILE as a reader would have set them, and a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return dict(os.environ) | {
        "MODEL": str(golden / "hybrid-tdt-ctc-bpe" / "model.nemo"),
        "FILE": str(golden / "clips" / "slt-12s.wav"),
        "STENO_PORT": str(port),
    }


def run(script: str, environment: dict) -> str:
    """Run a block; only the port and the environment's place differ from what the reader types."""
    script = script.replace("localhost:8000", f"localhost:{environment['STENO_PORT']}")
    script = script.replace(".venv/bin/steno", f"{sys.executable} -m cli")
    done = subprocess.run(["bash", "-euc", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(environment):
    """`make serve MODEL=...`, with the environment these tests run in instead of a new one."""
    prefix = Path(sys.prefix)
    assert "make serve MODEL=" in README
    process = subprocess.Popen(
        ["make", "serve", f"MODEL={environment['MODEL']}", f"VENV={prefix}", f"--old-file={prefix}/.ready"],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until_ready(process, environment["STENO_PORT"])
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def wait_until_ready(process: subprocess.Popen, port: str) -> None:
    tick = threading.Event()
    for _ in range(1200):
        assert process.poll() is None
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://localhost:{port}/readyz"):
            return
        tick.wait(0.1)
    raise AssertionError("the server did not become ready")


@pytest.mark.parametrize("script", blocks("command"))
def test_commands_do_what_they_say(script, environment):
    output = run(script, environment)

    assert "FastConformer" in output or "tdt" in output
    assert len(output.splitlines()[-1].split()) > 3


@pytest.mark.program("curl")
@pytest.mark.program("make")
@pytest.mark.parametrize("script", blocks("request"))
def test_requests_are_answered_with_the_words(script, environment, server):
    offline = run('.venv/bin/steno transcribe "$FILE" --model "$MODEL"', environment)

    output = run(script, environment)

    assert f'"text":"{offline.strip()}"' in output
    assert ('"words":[{' in output) == ("granularities" in script)


def test_there_are_blocks_to_run():
    assert len(blocks("request")) == 2
    assert len(blocks("command")) == 1
    assert len(BLOCKS) == 3
