from service.metrics import Metrics
from service.workers.totals import Totals, snapshot
from tests.service.serving import metric


def test_the_sum_over_processes_does_not_fall_when_one_of_them_ends():
    ours, theirs = Metrics(), Metrics()
    ours.http_requests.labels("models", "GET", "200").inc(2)
    theirs.http_requests.labels("transcriptions", "POST", "200").inc(3)
    theirs.stage_duration.labels("decode").observe(0.02)
    theirs.connections.set(5)
    totals = Totals(ours.registry)

    def read(workers) -> dict[str, float]:
        text = totals.exposition(workers)().decode()
        names = ("steno_http_requests_total", "steno_stage_duration_seconds_count", "steno_connections")
        assert text.count("# TYPE steno_connections gauge") == 1
        return {name: metric(text, name) for name in names}

    before = read([snapshot(theirs.registry)])
    totals.retire(snapshot(theirs.registry))
    after = read([])

    assert list(before.values()) == [5, 1, 5]
    assert b"_created" not in totals.exposition([])()
    assert list(after.values()) == [5, 1, 0]  # gauges of an ended process do not count


def test_a_worker_that_ends_while_a_scrape_is_written_counts_once():
    ours, theirs = Metrics(), Metrics()
    theirs.http_requests.labels("transcriptions", "POST", "200").inc(3)
    totals = Totals(ours.registry)

    written = totals.exposition([snapshot(theirs.registry)])
    totals.retire(snapshot(theirs.registry))

    assert metric(written().decode(), "steno_http_requests_total") == 3


def test_only_the_process_of_the_dispatcher_exports_its_memory():
    ours, theirs = Metrics(), Metrics()

    text = Totals(ours.registry).exposition([snapshot(theirs.registry)])().decode()

    assert len([line for line in text.splitlines() if line.startswith("process_resident_memory_bytes ")]) == 1
    assert not [family for family in snapshot(theirs.registry) if not family.startswith("steno_")]
