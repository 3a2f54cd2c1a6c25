"""`steno serve` is killed with -9 while jobs wait and run; the next one does them all."""

import os
import signal

import pytest

from benchmarks.stub_engine import SAMPLE_RATE, STUB_ENGINE, transcript
from service.engine.supervisor import SPEECH_ENGINE
from tests.service.serving import ServerProcess, form, steno_serve, tone, wait_for, wav

JOBS = "/v1/audio/jobs"


def check_kill_9_loses_no_job(tmp_path, engine: str, recordings: list[bytes]) -> list[str]:
    """Return the texts of jobs that were accepted by a service that was killed with -9."""
    flags = ("--jobs-folder", str(tmp_path / "jobs"), *(("--model", "stub.nemo") if engine == STUB_ENGINE else ()))
    with steno_serve(tmp_path / "first.log", *flags, engine=engine) as service:
        service.signal_engine(signal.SIGSTOP)
        jobs = [service.client.post(JOBS, **form(recording)).json()["id"] for recording in recordings]
        wait_for(lambda: states(service, jobs).count("in_progress") == 2)
        assert states(service, jobs).count("queued") == len(jobs) - 2
        engine_pid = service.engine_pid()
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        os.kill(engine_pid, signal.SIGCONT)  # so that it notices that its front is gone
    with steno_serve(tmp_path / "second.log", *flags, engine=engine) as service:
        wait_for(lambda: set(states(service, jobs)) <= {"completed", "failed"})
        assert set(states(service, jobs)) == {"completed"}
        return [service.client.get(f"{JOBS}/{job}/result").json()["text"] for job in jobs]


def states(service: ServerProcess, jobs: list[str]) -> list[str]:
    return [service.client.get(f"{JOBS}/{job}").json()["status"] for job in jobs]


@pytest.mark.slow
def test_kill_9_loses_no_job(tmp_path):
    tones = [tone(SAMPLE_RATE // 2 + number) for number in range(5)]

    heard = check_kill_9_loses_no_job(tmp_path, STUB_ENGINE, [wav(samples) for samples in tones])

    assert heard == [transcript(samples).text for samples in tones]


@pytest.mark.long
def test_kill_9_loses_no_job_of_the_bundled_model(tmp_path, golden):
    heard = check_kill_9_loses_no_job(tmp_path, SPEECH_ENGINE, [(golden / "clips" / "rms-6s.wav").read_bytes()] * 3)

    assert heard[0]
    assert len(set(heard)) == 1


def test_a_folder_that_cannot_be_used_stops_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AssertionError, match="the folder of the jobs"):
        with steno_serve(tmp_path / "log", "--jobs-folder", str(tmp_path / "file")):
            pass
