"""Models that requests choose by a pattern have a share of the disk; what was not used for the longest time goes."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from models import checkpoint_path
from models.checkpoint import guests
from models.errors import DownloadError, MissingCheckpointError, UnreadableCheckpointError
from tests.models.checkpoint.hub_stand_in import Repository

SIZE = 10_000


@pytest.fixture
def ask(hub, monkeypatch):
    """Load a model of a pattern, on a disk that gives guests two models and a bit; return the letters of the cached."""
    disk = 2 * (2 * SIZE + 500)
    names = [f"owner/{name}" for name in "abcdef"]
    hub.repositories.update(
        {name: Repository({"main": {"m.nemo": name.encode() * (SIZE // len(name))}}) for name in names}
    )
    hub.repositories["owner/huge"] = Repository({"main": {"m.nemo": bytes(3 * SIZE)}})
    turn = iter(range(1_000_000_000, 2_000_000_000))

    def used() -> int:
        marks = Path(constants.HF_HUB_CACHE).glob(f"*/{guests._MARK}")
        return sum(blob.stat().st_size for mark in marks for blob in mark.parent.glob("blobs/*"))

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=disk - used()))

    def ask(name: str, *keeps: str, is_named: bool = False) -> str:
        assert checkpoint_path(f"owner/{name}", keeps=None if is_named else keeps).is_file()
        if (mark := folder(name) / guests._MARK).exists():
            os.utime(mark, (now := next(turn), now))  # clocks of file systems may be coarse
        return cached()

    return ask


def folder(name: str) -> Path:
    return Path(constants.HF_HUB_CACHE) / f"models--owner--{name}"


def begun(name: str) -> None:
    """What an engine has of a model in the middle of its download."""
    (folder(name) / "blobs").mkdir(parents=True)
    (folder(name) / guests._MARK).touch()
    (folder(name) / "blobs" / "0.incomplete").write_bytes(bytes(SIZE - 4))
    os.utime(folder(name) / guests._MARK, (0, 0))


def cached() -> str:
    return "".join(sorted(path.name[-1] for path in Path(constants.HF_HUB_CACHE).glob("models--*")))


def test_the_least_recently_used_goes_and_never_one_that_stays(ask):
    assert ask("a") == "a"
    assert ask("b") == "ab"
    assert ask("a") == "ab"  # from the cache
    assert ask("c") == "ac"
    assert ask("d", "owner/a", "elsewhere/a", "/some/path.nemo") == "ad"
    assert ask("e", "owner/a") == "ae"
    with pytest.raises(DownloadError, match=r"owner/f takes 9996 bytes, and .* loaded ones hold 19992"):
        ask("f", "owner/a", "owner/e@main")
    assert cached() == "ae"


def test_one_that_is_larger_than_the_share_is_refused_before_it_is_downloaded(hub, ask):
    ask("a")
    hub.requests.clear()

    with pytest.raises(DownloadError, match="owner/huge takes 30000 bytes, and of the 20500"):
        ask("huge")

    assert (cached(), hub.downloads()) == ("a", [])


def test_what_an_operator_names_is_not_counted_and_does_not_go(ask):
    ask("a", is_named=True)
    ask("b")
    ask("b", is_named=True)  # from now on

    assert [ask(name) for name in "cde"] == ["abc", "abcd", "abde"]


def test_what_another_program_has_downloaded_stays(ask):
    ask("a", is_named=True)

    assert [ask(name) for name in "abcd"] == ["a", "ab", "abc", "acd"]


def test_a_download_that_stopped_counts_and_goes(ask):
    begun("a")

    assert [ask(name) for name in "bcd"] == ["ab", "bc", "cd"]


def test_an_engine_that_comes_second_counts_what_the_first_has_in_part_as_disk_that_is_left(ask):
    ask("a")
    begun("b")

    assert ask("b") == "ab"


def test_a_model_that_is_let_go_was_used_until_then(ask):
    ask("a"), ask("b")
    guests.note_use("owner/a")
    guests.note_use("owner/none")

    assert ask("c") == "ac"


def test_nothing_is_left_of_a_model_that_has_no_checkpoint(hub, ask):
    hub.repositories["owner/none"] = Repository({"main": {"README.md": b"#"}})
    with pytest.raises(UnreadableCheckpointError):
        ask("none")
    with pytest.raises(MissingCheckpointError):
        ask("unknown")

    assert cached() == ""
