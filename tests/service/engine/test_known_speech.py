"""A clip is transcribed by fast paths and by plain operations, once; other words are a warning and a state."""

import json

import pytest

from models.device.fast_paths import FastPath, FastPaths, PathState
from service.engine import process
from service.engine.known_speech import clip, clip_text, known_speech
from service.engine.protocol import Load

RATE = 8000


def said(text):
    def transcribe(samples):
        assert len(samples) == len(clip(RATE))
        return text

    return transcribe


def test_the_same_words_are_well_whatever_their_case_and_marks(caplog):
    assert known_speech("m", RATE, said("Had he, married"), said("had he married"), is_bundled=False) == "used"
    assert known_speech("m", RATE, said(clip_text().upper()), said(clip_text()), is_bundled=True) == "used"
    assert not caplog.records


@pytest.mark.parametrize(("plain", "is_bundled"), [("had he marred", False), ("had he marred", True)])
def test_other_words_are_a_warning_with_both_texts(caplog, plain, is_bundled):
    assert known_speech("m", RATE, said("had he married"), said(plain), is_bundled=is_bundled) == "disagreed"

    (record,) = caplog.records
    assert (record.levelname, record.text, record.plain_text) == ("WARNING", "had he married", plain)
    assert getattr(record, "said", None) == (clip_text() if is_bundled else None)


def test_words_that_both_get_wrong_are_wrong_for_the_bundled_model(caplog):
    assert known_speech("m", RATE, said("a man"), said("a man"), is_bundled=True) == "disagreed"
    assert known_speech("m", RATE, said("a man"), said("a man"), is_bundled=False) == "used"


def test_plain_operations_that_fail_say_nothing(caplog):
    def failing(_):
        raise RuntimeError("no memory")

    assert known_speech("m", RATE, said("a"), failing, is_bundled=False) is None
    assert caplog.records[0].why == "no memory"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Starts engines as on a GPU whose fast paths are used; what they compute is computed on the CPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = FastPaths()
    paths.suits = lambda _: True
    paths.note(FastPath.ATTENTION, PathState.USED)
    monkeypatch.setattr(process, "FAST_PATHS", paths)

    def start():
        engine = process.SpeechRecognizer(Load("m", "bundled", "cpu", "float32", [8.0], 8.0, 1), lambda *_: None)
        list(engine.warm_up())
        return engine

    return start


@pytest.mark.slow
@pytest.mark.parametrize("small", [0, 200_000_000])
def test_an_engine_keeps_what_came_of_it(engine, tmp_path, monkeypatch, small):
    monkeypatch.setattr(process, "_SMALL_WEIGHT_BYTES", small)
    assert engine().fast_paths() == {"attention": "used", "known_speech": "used"}
    (kept,) = json.loads((tmp_path / "steno" / "fast_paths.json").read_text()).values()
    assert [(name.partition(" of ")[0], state) for name, state in kept.items()] == [("known_speech", "used")]

    monkeypatch.setattr(process, "known_speech", None)  # another one does not transcribe it again
    assert engine().fast_paths()["known_speech"] == "used"


@pytest.mark.slow
def test_an_engine_that_hears_other_words_is_ready_and_says_so(engine, monkeypatch):
    monkeypatch.setattr(process.SpeechRecognizer, "_text", lambda *_: "another text")

    assert engine().fast_paths()["known_speech"] == "disagreed"


@pytest.mark.slow
def test_without_fast_paths_there_is_nothing_to_compare(engine, monkeypatch):
    process.FAST_PATHS.limit("none")
    monkeypatch.setattr(process, "known_speech", None)

    assert "known_speech" not in engine().fast_paths()
