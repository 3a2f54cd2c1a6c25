"""Clients that load a service count what they get from it: transcripts with their audio, and refusals."""

import asyncio

import httpx
import pytest

from benchmarks.load import Upload, loaded
from tests.service.serving import serving, tone, wav

SECONDS = 0.3


@pytest.mark.parametrize(
    ("content", "status"), [(wav(tone(16_000)), 200), (b"no recording", 400)], ids=["answered", "refused"]
)
def test_every_answer_is_counted_and_only_transcripts_are_timed(content, status):
    uploads = [Upload.of("a clip", content, 1.0, "whisper-1")]

    with serving() as service:
        url = str(service.client.base_url)
        answers, took = asyncio.run(loaded(url, uploads, 3, SECONDS, warm_up_seconds=0.0))

    assert list(answers.statuses) == [status]
    transcripts = answers.statuses[200]
    assert len(answers.latencies) == answers.audio_seconds == transcripts
    assert answers.statuses.total() >= 3
    assert took >= SECONDS
    assert all(0 < latency <= took for latency in answers.latencies)


def test_a_service_that_is_not_there_is_an_error():
    with pytest.raises(httpx.ConnectError):
        asyncio.run(loaded("http://127.0.0.1:9", [Upload.of("a clip", b"", 1.0, "whisper-1")], 1, SECONDS, 0.1))
