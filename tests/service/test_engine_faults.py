"""Faults in a real engine with a real model: only the request that causes one gets an error."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile

from tests.service import faulty_engine
from tests.service.faulty_engine import (
    FAIL_SAMPLES,
    HOLD_SAMPLES,
    NAN_SAMPLES,
    POISON_SAMPLES,
    ROOM_SAMPLES,
    SPIN_SAMPLES,
)
from tests.service.serving import form, serving, wait_for, wav

ENGINE = faulty_engine.__name__


@pytest.fixture(scope="module")
def checkpoint(golden):
    return str(golden / "hybrid-tdt-ctc-bpe" / "model.nemo")


@pytest.fixture(scope="module")
def speech(golden):
    clips = [soundfile.read(path, dtype="float32")[0] for path in sorted((golden / "clips").glob("*.wav"))]
    return np.concatenate(clips)


def post(service, samples):
    return service.post(**form(wav(samples)))


def together(service, recordings):
    """The answers to recordings of which all but the first are in one batch."""
    before = service.metric("steno_queue_wait_seconds_count")
    with ThreadPoolExecutor(len(recordings)) as pool:
        service.hold_engine()
        answers = [pool.submit(post, service, recordings[0])]
        wait_for(lambda: service.metric("steno_queue_wait_seconds_count") == before + 1)
        answers += [pool.submit(post, service, samples) for samples in recordings[1:]]
        wait_for(lambda: service.metric("steno_queue_depth") == len(recordings) - 1)
        service.release_engine()
        return [answer.result() for answer in answers]


def said(answers):
    """Status and text, or code, of each."""
    bodies = [answer.json() for answer in answers]
    texts = [body["text"] if "text" in body else body["error"]["code"] for body in bodies]
    return [(answer.status_code, text) for answer, text in zip(answers, texts, strict=True)]


def good(speech, samples=16_100):
    """Recordings of about a second, with lengths that cause no fault."""
    return [speech[start : start + samples + start // 4000] for start in range(0, 40_000, 8000)]


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "fault"), [(NAN_SAMPLES, "no numbers"), (FAIL_SAMPLES, "fails its batch")])
def test_a_poisoned_utterance_among_good_ones_fails_alone(checkpoint, speech, samples, fault, capfd):
    with serving(engine=ENGINE, model=checkpoint) as service:
        recordings = good(speech)
        alone = said([post(service, recording) for recording in recordings])

        served = said(together(service, [*recordings[:3], speech[:samples], *recordings[3:]]))

        assert served.pop(3) == (500, "internal_error")
        assert served == alone
        assert {status for status, _ in alone} == {200}
        assert service.metric('steno_batches_total{result="error"}') == 2  # with the others, and alone
        assert service.metric("steno_engine_restarts_total") == 0
    assert fault in capfd.readouterr().err


@pytest.mark.slow
def test_repeated_outputs_of_nan_replace_the_engine(checkpoint, speech):
    with serving(engine=ENGINE, model=checkpoint) as service:
        statuses = [post(service, speech[:NAN_SAMPLES]).status_code for _ in range(3)]

        assert statuses == [500, 500, 500]  # the third by a new engine, for which it is the first
        assert service.metric('steno_engine_restarts_total{reason="cuda_fatal"}') == 1
        assert post(service, speech[:20_000]).status_code == 200


@pytest.mark.slow
def test_a_device_that_failed_gets_no_more_work(checkpoint, speech):
    with serving(engine=ENGINE, model=checkpoint) as service:
        recordings = good(speech)
        alone = said([post(service, recording) for recording in recordings])

        served = said(together(service, [*recordings[:3], speech[:POISON_SAMPLES], *recordings[3:]]))

        assert served.pop(3) == (503, "engine_lost")
        assert served == alone
        assert service.metric('steno_engine_restarts_total{reason="cuda_fatal"}') == 2
        assert said([post(service, recordings[0])]) == alone[:1]


@pytest.mark.slow
def test_a_batch_that_runs_out_of_memory_is_split_and_everything_is_answered(checkpoint, speech):
    with serving(engine=ENGINE, model=checkpoint) as service:
        recordings = good(speech, ROOM_SAMPLES // 3)
        alone = said([post(service, recording) for recording in recordings])

        served = said(together(service, recordings))

        assert served == alone
        assert {status for status, _ in served} == {200}
        assert service.metric("steno_oom_total") >= 1
        assert service.metric("steno_engine_restarts_total") == 0


@pytest.mark.long
@pytest.mark.parametrize("samples", [SPIN_SAMPLES, HOLD_SAMPLES])
def test_an_engine_in_a_busy_loop_is_replaced_and_others_are_answered(checkpoint, speech, samples):
    with serving(engine=ENGINE, model=checkpoint, engine_timeout_seconds=2.0) as service:
        recordings = good(speech)
        alone = said([post(service, recording) for recording in recordings])

        served = said(together(service, [*recordings[:3], speech[:samples], *recordings[3:]]))

        assert served.pop(3) == (503, "engine_lost")
        assert served == alone
        assert service.metric('steno_engine_restarts_total{reason="stuck"}') == 2
