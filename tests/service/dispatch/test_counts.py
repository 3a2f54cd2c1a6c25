import os
import resource

from audio.descriptor import unnamed_file
from service.dispatch.counts import SharedMemory
from service.http.wire.connections import Connections
from service.metrics import Metrics
from service.settings import Settings


def test_counts_are_those_of_all_processes_until_one_is_cleared():
    file = unnamed_file()
    try:
        shared = [SharedMemory(file, 3, row) for row in range(3)]
        requests = [one.request_counts for one in shared]
        connections = [one.counts("connections") for one in shared]
        for own_requests, own_connections in zip(requests, connections, strict=True):
            own_requests.requests.add(1, "key a")
            own_requests.requests.add(1, "10.0.0.1")
            own_requests.stored_bytes.add(100)
            own_connections.add(1, "10.0.0.1")
        connections[1].add(1, "10.0.0.2")
        assert {counts.requests.total for counts in requests} == {6}
        assert {counts.requests.own for counts in requests} == {2}
        assert {counts.requests.of("key a") for counts in requests} == {3}
        assert {counts.stored_bytes.total for counts in requests} == {300}
        assert [(counts.total, counts.own, counts.of("10.0.0.1"), counts.of("10.0.0.2")) for counts in connections] == [
            (4, 1, 3, 1),
            (4, 2, 3, 1),
            (4, 1, 3, 1),
        ]

        shared[0].rows[1] = 0

        assert (requests[2].requests.total, requests[2].requests.of("key a")) == (4, 2)
        assert (connections[2].total, connections[2].of("10.0.0.1"), connections[2].of("10.0.0.2")) == (2, 2, 0)
    finally:
        os.close(file)


def test_each_process_has_the_connections_for_which_it_has_files_and_all_together_those_of_the_setting():
    file, usual = unnamed_file(), resource.getrlimit(resource.RLIMIT_NOFILE)
    settings, metrics = Settings(max_connections=5), Metrics()
    try:
        shared = [SharedMemory(file, 3, row) for row in range(3)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (6, usual[1]))  # half of them are 3
        first, second = (Connections(settings, metrics, one.counts("connections")) for one in shared[1:])
        assert [first.enter(f"10.0.0.{last}") for last in range(4)] == [None, None, None, "connections"]
        assert [second.enter(f"10.0.0.{last}") for last in range(4, 7)] == [None, None, "connections"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        os.close(file)
