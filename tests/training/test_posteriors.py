"""A store gives back the frames that were put into it, also after a kill."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from training.errors import TrainingError
from training.posteriors import PosteriorStore, record_type

LABELS = 3


def frames(count, seed=0):
    random = np.random.default_rng(seed)
    records = np.empty(count, record_type(LABELS))
    records["blank"] = random.random(count)
    records["labels"] = random.integers(0, 65535, (count, LABELS))
    records["masses"] = random.random((count, LABELS))
    return records


def filled(folder, counts):
    """A store of takes with these numbers of frames, named by them."""
    store = PosteriorStore(folder, LABELS)
    with store.writing() as writer:
        for number, count in enumerate(counts):
            writer.add([str(number)], [frames(count, number)])
    return store


@pytest.mark.parametrize("reopened", [False, True])
def test_frames_come_back_as_they_were_put_in(tmp_path, reopened):
    store = filled(tmp_path, [5, 0, 7])
    store = PosteriorStore(tmp_path, LABELS) if reopened else store

    assert all(np.array_equal(store.read(str(number)), frames(count, number)) for number, count in enumerate([5, 0, 7]))
    assert "3" not in store
    with pytest.raises(KeyError):
        store.read("3")


def test_a_store_grows_after_it_was_read(tmp_path):
    store = filled(tmp_path, [5])
    assert len(store.read("0")) == 5

    with store.writing() as writer:
        writer.add(["a", "b"], [frames(2, 8), frames(3, 9)])

    assert np.array_equal(store.read("a"), frames(2, 8))
    assert np.array_equal(store.read("b"), frames(3, 9))


@pytest.mark.parametrize("extra", [b"\x01" * 5, b"\x02" * 200])
def test_what_was_written_last_before_a_kill_is_written_again(tmp_path, extra):
    filled(tmp_path, [5, 7])
    with (tmp_path / "frames.bin").open("ab") as file:
        file.write(extra)
    with (tmp_path / "index.jsonl").open("ab") as file:
        file.write(b'{"name": "2", "sta')

    store = PosteriorStore(tmp_path, LABELS)
    assert "2" not in store
    with store.writing() as writer:
        writer.add(["2"], [frames(4, 2)])

    again = PosteriorStore(tmp_path, LABELS)
    assert [len(again.read(str(number))) for number in range(3)] == [5, 7, 4]
    assert np.array_equal(again.read("2"), frames(4, 2))


@pytest.mark.parametrize("extra", [b"\x01" * 5, b"\x02" * 200])
def test_a_part_of_a_record_at_the_end_does_not_keep_the_others_from_being_read(tmp_path, extra):
    filled(tmp_path, [5])
    with (tmp_path / "frames.bin").open("ab") as file:
        file.write(extra)

    assert np.array_equal(PosteriorStore(tmp_path, LABELS).read("0"), frames(5))


def test_a_store_to_which_another_run_adds_while_it_is_opened_is_not_damaged(tmp_path):
    index = tmp_path / "index.jsonl"
    os.mkfifo(index)  # what opens the store waits at the index until the other run has written

    def add():
        with index.open("w") as lines:
            (tmp_path / "frames.bin").write_bytes(frames(5).tobytes())
            lines.write('{"name": "0", "start": 0, "frames": 5}\n')

    other = threading.Thread(target=add)
    other.start()
    try:
        store = PosteriorStore(tmp_path, LABELS)
    finally:
        other.join()

    assert np.array_equal(store.read("0"), frames(5))


def test_two_do_not_write_at_once_and_the_second_sees_what_the_first_wrote(tmp_path):
    first, second = PosteriorStore(tmp_path, LABELS), PosteriorStore(tmp_path, LABELS)

    with first.writing() as writer:
        writer.add(["0"], [frames(5)])
        with pytest.raises(TrainingError, match="another run"), second.writing():
            pass

    with second.writing() as writer:
        assert "0" in second
        writer.add(["1"], [frames(2, 1)])
    assert np.array_equal(PosteriorStore(tmp_path, LABELS).read("0"), frames(5))


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"name": "1"}\n', b'{"name": "1", "start": 5, "frames": 90}\n'])
def test_a_damaged_store_is_refused(tmp_path, line):
    filled(tmp_path, [5])
    with (tmp_path / "index.jsonl").open("ab") as file:
        file.write(line)

    with pytest.raises(TrainingError, match="remove its folder"):
        PosteriorStore(tmp_path, LABELS)


def test_the_index_never_runs_ahead_of_the_frames(tmp_path, monkeypatch):
    store = PosteriorStore(tmp_path, LABELS)
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (real(file), synced.append(Path(f"/proc/self/fd/{file}").readlink().name))
    )

    with store.writing() as writer:
        writer.add(["0"], [frames(5)])

    assert synced == ["frames.bin", "index.jsonl"]
