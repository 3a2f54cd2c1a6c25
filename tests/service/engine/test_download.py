"""Progress of a download is reported, in the log and to the supervisor, which then waits."""

import logging
from types import SimpleNamespace

from service.engine.download import DownloadReport
from service.engine.protocol import Downloading, Load
from service.engine.supervisor import Engine


def test_a_download_is_reported_every_second_and_logged_every_ten_and_at_its_end(caplog):
    clock, sent = iter([0.0, 0.5, 1.0, 5.0, 10.5, 10.6]), []
    report = DownloadReport("owner/name", sent.append, lambda: next(clock))

    with caplog.at_level(logging.INFO, "steno.engine"):
        for here in (1, 2, 3, 4, 5, 6):
            report(here, 6)

    assert sent == [Downloading()] * 5
    assert [record.bytes for record in caplog.records] == [1, 5, 6]
    assert all(record.of_bytes == 6 and record.model == "owner/name" for record in caplog.records)


def test_the_time_for_loading_begins_when_the_download_is_over():
    now = 1000.0

    channel = SimpleNamespace(send=lambda message: None)
    engine = Engine("cpu", SimpleNamespace(pid=1), channel, memory=-1, writing=None, clock=lambda: now)
    engine.load(Load("m", "m", "cpu", "float32", [1.0], None, None))
    now += 1000.0
    assert engine.is_stuck(timeout=1e6)

    engine.note_message(Downloading())

    now += 800.0
    assert not engine.is_stuck(timeout=1e6)
    now += 200.0
    assert engine.is_stuck(timeout=1e6)
