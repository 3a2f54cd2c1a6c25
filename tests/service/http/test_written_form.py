"""`format=written`: numbers as people write them."""

import asyncio
import json
import os
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service import grammars
from service.grammars import PACKAGE, Grammars
from tests.service.http.test_api import error
from tests.service.serving import form, serving, tone, wav
from tests.soak.processes import grammar_processes
from transcripts.transcript import Transcript, Word
from transcripts.written_form import in_written_form

GERMAN, ENGLISH, FRENCH = (tone(48_000 + remainder) for remainder in range(3))
SETTINGS = {"model": "polyglot.nemo"}


@pytest.fixture(scope="module", autouse=True)
def stub():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammars, "MODULE", "tests.service.stub_grammars")
        patch.setattr(grammars, "find_spec", lambda name: name)
        yield


@pytest.fixture(scope="module")
def service(stub):
    with serving(**SETTINGS) as served:
        yield served


def post(service, samples=ENGLISH, **fields):
    return service.post(**form(wav(samples), **({"format": "written"} | fields)))


def spoken(text: str) -> Transcript:
    words = [Word(one, n / 2, (n + 1) / 2, 0.9 - n / 100, (2 * n, 2 * n + 2)) for n, one in enumerate(text.split())]
    return Transcript(text, list(range(2 * len(words))), [0.9] * 2 * len(words), words)


def rewritten(text: str, *phrases: tuple[str, str]) -> Transcript:
    async def write(asked):
        return [dict(phrases).get(phrase, phrase) for phrase in asked]

    return asyncio.run(in_written_form(spoken(text), write))


def test_words_that_are_written_as_one_have_its_span_and_the_lowest_confidence():
    heard = rewritten("it costs twenty three dollars now", ("it costs twenty three dollars now", "it costs $23 now"))

    assert heard.text == "it costs $23 now"
    assert [(word.text, word.start, word.end) for word in heard.words] == [
        ("it", 0.0, 0.5),
        ("costs", 0.5, 1.0),
        ("$23", 1.0, 2.5),
        ("now", 2.5, 3.0),
    ]
    assert heard.words[2].confidence == pytest.approx(0.86)
    assert heard.words[2].token_span == (4, 10)
    assert heard.tokens == spoken("a b c d e f").tokens


@pytest.mark.parametrize(
    ("text", "phrases", "expected"),
    [
        ("Twenty three, please.", [("twenty three", "23")], "23, please."),
        ("At ten p m.", [("at ten p m", "at 10 p.m.")], "At 10 p.m."),
        ("Nothing to write here?", [], "Nothing to write here?"),
        ("uh ten", [("uh ten", "10")], "10"),
        ("ten uh", [("ten uh", "10")], "10"),
        ("ten euros?", [("ten euros", "euros 10")], "euros 10?"),
        ("خمسة، عشرة؟", [("خمسة", "5"), ("عشرة", "10")], "5، 10؟"),
        ("पाँच।", [("पाँच", "5")], "5।"),
        ("¿Veinte dólares?", [("veinte dólares", "$20")], "¿$20?"),
        ("Pero ¿por veinte? ¿No?", [("por veinte", "por 20")], "Pero ¿por 20? ¿No?"),
        ("... what", [], "... what"),
        ("so", [("so", "")], "so"),
    ],
)
def test_punctuation_and_capitals_stay_where_they_were(text, phrases, expected):
    assert rewritten(text, *phrases).text == expected


@given(st.lists(st.text("ab.¿", min_size=1, max_size=3), max_size=8), st.lists(st.text("abc", max_size=3), max_size=8))
def test_every_word_is_in_one_group_and_times_stay_in_order(texts, written):
    part = spoken(" ".join(texts))

    async def write(asked):
        return [" ".join(written) for _ in asked]

    heard = asyncio.run(in_written_form(part, write))

    assert heard.text == " ".join(word.text for word in heard.words)
    spans = [span for word in heard.words for span in word.token_span]
    assert spans == sorted(spans)
    assert [token for word in heard.words for token in range(*word.token_span)] == part.tokens
    times = [time for word in heard.words for time in (word.start, word.end)]
    assert times == sorted(times)


def test_every_format_has_the_written_text(service):
    text = "Good morning, hru doing today?"
    verbose = post(service, response_format="verbose_json", timestamp_granularities="word").json()
    stream = post(service, stream="true").text.split("\n\n")[-2].removeprefix("data: ")

    assert post(service).json()["text"] == verbose["text"] == json.loads(stream)["text"] == text
    assert [word["word"] for word in verbose["words"]] == ["Good", "morning,", "hru", "doing", "today?"]
    assert post(service, response_format="srt").text.splitlines()[2] == text
    assert post(service, format="spoken").json()["text"] == "Good morning, how are you doing today?"


def test_each_channel_of_a_call_is_written(service):
    both = np.stack([ENGLISH, np.zeros_like(ENGLISH)], axis=1)

    assert post(service, both, multichannel="true").json()["text"] == "Good morning, hru doing today?"


@pytest.mark.parametrize("samples", [GERMAN, FRENCH])
def test_a_language_that_is_not_named_is_detected_first(service, samples):
    assert any(number in post(service, samples).json()["text"] for number in ("25", "1 234"))


def test_what_cannot_be_written_is_refused_by_the_field(service):
    assert error(post(service, format="roman"))["param"] == "format"
    logprobs = error(post(service, **{"include[]": "logprobs"}))
    assert (logprobs["code"], logprobs["param"]) == ("unsupported_value", "include")
    with serving() as any_language:
        refusal = error(post(any_language, language="fi"))
    assert (refusal["code"], refusal["param"]) == ("unsupported_value", "format")
    assert "finnish" in refusal["message"]


def test_without_the_grammars_the_refusal_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(grammars, "find_spec", lambda _: None)
    with serving(**SETTINGS) as service:
        refusal = error(post(service))

    assert (refusal["code"], refusal["param"]) == ("unsupported_value", "format")
    assert PACKAGE in refusal["message"]


def test_a_text_that_ends_the_process_is_an_error_and_the_next_one_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "fatal"))
    with serving(**SETTINGS) as service:
        assert error(post(service, ENGLISH))["code"] == "internal_error"
        assert "25" in post(service, GERMAN).json()["text"]


def test_a_process_of_grammars_that_is_killed_costs_no_answer(service):
    expected = post(service, GERMAN).json()
    (process,) = grammar_processes(os.getpid())
    os.kill(process, signal.SIGKILL)

    assert post(service, GERMAN).json() == expected


def test_a_process_that_ends_within_an_answer_costs_none(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "half"))
    with serving(**SETTINGS) as service:
        assert "25" in post(service, GERMAN).json()["text"]


@pytest.mark.long
def test_nemos_own_grammars_write_english(tmp_path, monkeypatch):
    pytest.importorskip(PACKAGE)
    monkeypatch.setattr(grammars, "MODULE", "service.grammar_process")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    writing = Grammars()
    try:
        written = asyncio.run(writing.write(["twenty three dollars on may fifth twenty twenty", "hello"], "en"))
    finally:
        writing.close()

    assert written == ["$23 on may 5 2020", "hello"]
