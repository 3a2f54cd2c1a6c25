"""Models that a setting allows can be loaded, and no others."""

from pathlib import Path

import pytest

from service.loadable import Loadable
from service.settings import Settings, SettingsError


@pytest.fixture
def folder(tmp_path):
    """A folder of models and other files."""
    models = tmp_path / "models"
    (models / "english").mkdir(parents=True)
    (models / "english" / "model.nemo").touch()
    (models / "canary").mkdir()
    (models / "canary" / "config.json").touch()
    (models / "recordings").mkdir()
    (models / "german.nemo").touch()
    (models / ".hidden.nemo").touch()
    (models / "notes.txt").touch()
    (tmp_path / "secret.nemo").touch()
    return models


def of(*entries: object) -> Loadable:
    return Settings.read({"models_on_demand": ",".join(map(str, entries))}).loadable


def test_a_folder_is_its_checkpoints(folder):
    loadable = of(folder)

    assert sorted(loadable.ids()) == ["canary", "english", "german"]
    assert loadable.checkpoint("german") == str(folder / "german.nemo")
    assert loadable.checkpoint("english") == str(folder / "english")
    (folder / "late.nemo").touch()
    assert loadable.checkpoint("late") == str(folder / "late.nemo")


def test_a_folder_that_cannot_be_read_hides_no_other_model(folder, monkeypatch):
    is_file = Path.is_file

    def refuse(path):
        if path.parent.name == "recordings":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr("pathlib.Path.is_file", refuse)

    assert sorted(of(folder).ids()) == ["canary", "english", "german"]


@pytest.mark.parametrize(
    "model",
    [
        *("../secret", "../secret.nemo", "german.nemo", ".hidden", "", ".", "..", "/", "recordings", "notes", "a\0b"),
        *(
            "english/model",
            "english/../german",
            "nvidia/other",
            "nvidia/parakeet@main",
            "nvidia/parakeet/x",
            "x" * 9999,
        ),
    ],
)
def test_other_names_cannot_be_loaded(folder, model):
    assert of(folder, "nvidia/parakeet").checkpoint(model) is None


def test_single_checkpoints_come_first(folder):
    loadable = of(f"german={folder / 'english'}", "bundled", "acme/words@v1", folder)

    assert loadable.checkpoint("german") == str(folder / "english")
    assert loadable.checkpoint("steno-bundled") == "bundled"
    assert loadable.checkpoint("acme/words") == "acme/words@v1"
    assert loadable.checkpoint("nvidia/canary-1b") is None
    assert loadable.ids()[:3] == ["german", "steno-bundled", "acme/words"]


@pytest.mark.parametrize("entry", ["/nowhere/x.nemo", "x=/nowhere", "nowhere.nemo", "/"])
def test_a_missing_checkpoint_stops_the_start(entry):
    with pytest.raises(SettingsError, match=r"models_on_demand names|names no checkpoint"):
        of(entry)
