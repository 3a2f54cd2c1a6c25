"""The README's runnable blocks are run, as they stand, on the service that `make serve` starts."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = "samples/austen.flac"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- runnable: (\w+) -->\n```bash\n(.*?)```", README, re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [script for found, script in BLOCKS if found == kind]


def test_it_is_short():
    assert len(README.splitlines()) <= 120


@pytest.fixture(scope="module")
def environment(golden):
    """MODEL and FILE as a reader would have set them, and a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A reader has not set what other tests set.
    unset = {name: value for name, value in os.environ.items() if name != "STENO_DTYPE"}
    return unset | {
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
    """`make serve`, with the environment these tests run in instead of a new one."""
    assert "\nmake serve\n" in README
    process = subprocess.Popen(
        ["make", "serve", *this_environment()],
        cwd=ROOT,
        env=environment_without_model(environment),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until_ready(process, environment["STENO_PORT"])
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 15)
        process.wait(60)


def this_environment() -> list[str]:
    """Arguments that keep make from building an environment."""
    return [f"VENV={sys.prefix}", f"--old-file={sys.prefix}/.ready"]


def environment_without_model(environment: dict) -> dict:
    """make takes variables from the environment too, and a reader who types `make serve` has not set MODEL."""
    return {name: value for name, value in environment.items() if name != "MODEL"}


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
    transcript, *facts, last = run(script, environment).splitlines()

    assert transcript == in_the_readme("text")
    assert any(fact.split() == ["speech", "same", "words", "True"] for fact in facts)  # doctor's
    assert len(last.split()) > 3


def test_names_come_right_as_it_says(environment):
    (script,) = blocks("names")
    said = (ROOT / "samples" / "letter.txt").read_text(encoding="utf-8")

    transcripts = run(script, environment).splitlines()

    stated = re.findall(r"# \.\.\. (.*) \.\.\.$", script, re.MULTILINE)
    assert all(words in text for words, text in zip(stated, transcripts, strict=True))
    assert transcripts[0] != transcripts[1] == re.sub(r"[^a-z ]", "", said.lower())


def in_the_readme(field: str) -> object:
    """A field of the answer that the README shows."""
    (answer,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    return json.loads(answer)[field]


def test_the_samples_transcript_is_that_of_the_readme():
    said = (ROOT / SAMPLE).with_suffix(".txt").read_text(encoding="utf-8")

    assert in_the_readme("text") == re.sub(r"[^a-z' ]", "", said.lower())


@pytest.mark.program("curl")
@pytest.mark.program("make")
@pytest.mark.parametrize("script", blocks("request"))
def test_requests_are_answered_with_the_words(script, environment, server):
    file = SAMPLE if SAMPLE in script else environment["FILE"]
    offline = run(f'.venv/bin/steno transcribe "{file}"', environment).strip()

    output = run(script, environment)

    assert f'"text":"{offline}"' in output
    assert ('"words":[{' in output) == ("granularities" in script)
    if file == SAMPLE:
        assert json.loads(output) == {"text": in_the_readme("text"), "usage": in_the_readme("usage")}


@pytest.mark.program("curl")
@pytest.mark.program("make")
def test_the_model_that_ships_has_one_name_everywhere(environment, server):
    models = json.loads(run("curl -sS localhost:8000/v1/models", environment))
    metrics = run("curl -sS localhost:8000/metrics", environment)

    assert [model["id"] for model in models["data"]] == ["steno-bundled"]
    assert re.search(r'^steno_model_info\{[^}]*model="steno-bundled"', metrics, re.MULTILINE)


@pytest.mark.program("make")
@pytest.mark.parametrize(("variables", "flags"), [([], ""), (["MODEL=m.nemo"], " --model m.nemo")])
def test_make_serve_names_the_model_that_it_is_given(variables, flags, environment):
    assert "make serve MODEL=" in README

    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "serve", *variables, *this_environment()],
        cwd=ROOT,
        env=environment_without_model(environment),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.rstrip() == f"{sys.prefix}/bin/steno serve{flags}"


def test_there_are_blocks_to_run():
    assert len(blocks("request")) == 2
    assert len(blocks("command")) == 1
    assert len(blocks("names")) == 1
    assert len(BLOCKS) == 4
