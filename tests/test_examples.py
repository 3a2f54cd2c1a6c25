"""The examples are run, as they stand, against a server."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stub_engine import SAMPLE_RATE, transcript
from tests.service.serving import serving, tone, wait_for, wav

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
COMMANDS = [
    pytest.param(["bash", "transcribe.sh"], marks=pytest.mark.program("curl"), id="curl"),
    pytest.param([sys.executable, "transcribe.py"], id="python"),
    pytest.param(["node", "transcribe.mjs"], marks=pytest.mark.clients, id="javascript"),
]
SECOND = tone(SAMPLE_RATE)
HEARD = transcript(SECOND)


@pytest.fixture(scope="module")
def service():
    with serving() as served:
        yield served


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        pytest.param(["bash", "extensions.sh"], id="extensions"),
        [sys.executable, "call.py"],
        [sys.executable, "names.py"],
        [sys.executable, "job.py"],
    ],
)
def test_without_a_recording_an_example_says_how_it_is_used(command):
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert done.stdout == ""
    assert "usage: " in done.stderr
    assert f"{command[-1]} RECORDING" in done.stderr
    assert done.stderr.count("\n") == 1


def run(command: list[str], service, recording: Path | str, *more: str) -> subprocess.CompletedProcess:
    url = f"http://127.0.0.1:{service.server.port}/v1"
    environment = os.environ | {"OPENAI_BASE_URL": url, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        [*command, str(recording), *more], cwd=EXAMPLES, env=environment, capture_output=True, text=True, check=False
    )


def test_the_example_of_names_sends_them(service, tmp_path):
    recording = tmp_path / "speech.wav"
    recording.write_bytes(wav(SECOND))

    done = run([sys.executable, "names.py"], service, recording, "Ada Lovelace", "Steno")

    assert (done.stdout, done.stderr) == (f"{HEARD.text}Ada Lovelace|Steno\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_gets_the_words_in_every_way(command, service, tmp_path):
    recording = tmp_path / "speech.wav"
    recording.write_bytes(wav(SECOND))

    done = run(command, service, recording)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(HEARD.text)
    assert done.stdout.count(HEARD.text) >= 3  # at once, as a segment, streamed
    assert all(word.text in done.stdout for word in HEARD.words)
    assert "0.9" in done.stdout  # a confidence
    assert "logprob" in done.stdout
    assert "00:00:00,000 --> 00:00:0" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_says_what_went_wrong_and_fails(command, service, tmp_path):
    recording = tmp_path / "notes.wav"
    recording.write_text("nothing that sounds" * 10)

    done = run(command, service, recording)

    assert done.returncode != 0
    assert "unsupported_format" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_job_is_made_awaited_and_deleted(tmp_path):
    recording = tmp_path / "speech.wav"
    recording.write_bytes(wav(SECOND))
    with serving(jobs_folder=tmp_path / "jobs") as service:
        done = run([sys.executable, "job.py"], service, recording)

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == HEARD.text
        assert service.client.get("/v1/audio/jobs").json()["data"] == []

        recording.write_text("nothing that sounds" * 10)
        assert "unsupported_format" in run([sys.executable, "job.py"], service, recording).stderr


@pytest.mark.slow
def test_a_job_that_is_gone_while_it_is_awaited_is_an_error(tmp_path):
    recording = tmp_path / "speech.wav"
    recording.write_bytes(wav(SECOND))
    with serving(jobs_folder=tmp_path / "jobs") as service, ThreadPoolExecutor() as pool:
        service.hold_engine()
        try:
            done = pool.submit(run, [sys.executable, "job.py"], service, recording)
            wait_for(lambda: service.client.get("/v1/audio/jobs").json()["data"] != [])
            (job,) = service.client.get("/v1/audio/jobs").json()["data"]
            service.client.delete(f"/v1/audio/jobs/{job['id']}").raise_for_status()
        finally:
            service.release_engine()

        error = service.client.get(f"/v1/audio/jobs/{job['id']}")
        assert done.result().stderr == f"404 {error.text}\n"


def test_every_example_is_run():
    programs = {path.name for path in EXAMPLES.glob("*.*") if path.suffix in (".sh", ".py", ".mjs")}

    assert programs == {parameter.values[0][1] for parameter in COMMANDS} | {
        "job.py",
        "call.py",
        "names.py",
        "extensions.sh",
    }


def test_the_example_of_a_call_names_the_speakers(service, tmp_path):
    recording = tmp_path / "call.wav"
    other = tone(SAMPLE_RATE, 0.2)
    recording.write_bytes(wav(np.stack([SECOND, other], axis=1)))

    done = run([sys.executable, "call.py", str(recording)], service, "agent")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"   0.00 agent: {HEARD.text}",
        f"   0.00 channel 2: {transcript(other).text}",
    ]


@pytest.mark.program("curl")
def test_extensions_are_shown_to_who_has_no_client(service, tmp_path):
    recording = tmp_path / "speech.wav"
    recording.write_bytes(wav(SECOND))

    done = run(["bash", "extensions.sh"], service, recording)

    assert done.returncode == 0, done.stdout
    sections = [section.partition("\n")[2] for section in done.stdout.split("# ")[1:]]
    assert len(sections) == 5
    assert '"abilities"' in sections[0]
    assert '"language"' in sections[1]
    assert sections[2] == f"Channel 1: {HEARD.text}\n"
    assert sections[3].startswith('data: {"type":"transcript.text.delta","delta":"WEBVTT')
