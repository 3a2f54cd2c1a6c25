"""The benchmark of an overload computes its figures from the answers."""

import asyncio
import sys

import pytest

from benchmarks.overload import Measured, Outcome, main, request, retry_after_ratios


def test_a_retry_after_is_compared_with_the_wait_of_the_next_accepted_request():
    accepted = [Outcome(0.0, 10.0, 200, None), Outcome(5.0, 20.0, 200, None)]
    refused = [Outcome(1.0, 0.01, 503, 40.0), Outcome(-1.0, 0.01, 503, 10.0), Outcome(9.0, 0.01, 503, 7.0)]

    assert retry_after_ratios(refused, accepted) == [1.0, 2.0]  # no request was accepted after the last


def test_goodput_is_of_what_was_answered_within_the_load_once_it_has_settled():
    outcomes = [Outcome(100.0, 5.0, 200, None), Outcome(101.0, 15.0, 200, None), Outcome(119.0, 30.0, 200, None)]

    report = Measured(outcomes, [], [], 100.0, 20.0).report(audio_seconds=8.0, settle=10.0)

    assert report["goodput_rtfx"] == 8.0 / 10.0
    assert report["statuses"] == {"200": 3}


def test_probes_that_failed_are_counted_and_have_no_time():
    probes = [Outcome(100.0, 0.002, 200, None), Outcome(101.0, 30.0, 0, None), Outcome(131.0, 0.001, 503, None)]

    report = Measured([], probes, [], 100.0, 20.0).report(audio_seconds=8.0, settle=10.0)

    assert set(report["healthz_ms"].values()) == {2.0}
    assert report["healthz_statuses"] == {"200": 1, "0": 1, "503": 1}


def test_what_no_answer_says_has_no_figure():
    refused = [Outcome(100.0, 0.01, 503, 40.0), Outcome(101.0, 0.01, 503, None)]

    report = Measured(refused, [], [], 100.0, 20.0).report(audio_seconds=8.0, settle=10.0)

    assert set(report["retry_after_s"].values()) == {40.0}
    assert report["within_factor_2"] is None


@pytest.mark.parametrize(
    ("answer", "status", "retry_after"),
    [
        (b"HTTP/1.1 503 Busy\r\nRetry-After:7\r\nContent-Length:2\r\n\r\nno", 503, 7.0),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", 502, None),  # its end is that of the connection
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, None),
        (b"HTTP/1.1 503\r\nretry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\ncontent-length: 0\r\n\r\n", 503, None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut", 0, None),
        (b"ready\r\n\r\n", 0, None),
        (b"", 0, None),
    ],
)
def test_every_answer_has_an_outcome(answer, status, retry_after):
    async def answered():
        async def reply(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await request("127.0.0.1", port, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")

    outcome = asyncio.run(answered())

    assert (outcome.status, outcome.retry_after) == (status, retry_after)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--seconds", "5", "--settle", "5"], "--settle, 5 s, must be less"), (["--rate", "0"], "--rate must be above 0")],
)
def test_options_that_no_figure_follows_from_are_refused(options, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["overload", *options])

    with pytest.raises(SystemExit):
        main()

    assert message in capsys.readouterr().err
