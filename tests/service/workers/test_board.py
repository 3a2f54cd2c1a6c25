import os

from audio.descriptor import unnamed_file
from service.workers.board import Board, BoardPlaces, BoardTally


def test_counts_are_those_of_all_processes_until_one_is_cleared():
    file = unnamed_file()
    try:
        boards = [Board(file, 3, row) for row in range(3)]
        tallies, places = [BoardTally(board) for board in boards], [BoardPlaces(board) for board in boards]
        for tally, place in zip(tallies, places, strict=True):
            tally.add(requests=2, stored_bytes=100)
            place.add("10.0.0.1", 1)
        places[1].add("10.0.0.2", 1)
        assert {tally.requests for tally in tallies} == {6}
        assert {tally.stored_bytes for tally in tallies} == {300}
        assert [(place.total, place.own, place.of("10.0.0.1"), place.of("10.0.0.2")) for place in places] == [
            (4, 1, 3, 1),
            (4, 2, 3, 1),
            (4, 1, 3, 1),
        ]

        boards[0].clear(1)

        assert tallies[2].requests == 4
        assert (places[2].total, places[2].of("10.0.0.1"), places[2].of("10.0.0.2")) == (2, 2, 0)
    finally:
        os.close(file)
