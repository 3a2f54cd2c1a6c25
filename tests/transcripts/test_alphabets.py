"""Scripts of texts and languages, and what a language's scripts say about a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.alphabets import (
    a_narrow_language,
    allowed_scripts,
    scripts_of_language,
    scripts_of_text,
    tells_apart,
)
from transcripts.languages import NAMES

# Some of those of parakeet-tdt-0.6b-v3.
EUROPEAN = "bg hr cs da nl en et fi fr de el hu it lv lt mt pl pt ro sk sl es sv ru uk".split()  # noqa: SIM905
SCRIPTS = {"LATIN", "CYRILLIC", "GREEK"}


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("Zażółć gęślą jaźń", {"LATIN"}),
        ("Це не те", {"CYRILLIC"}),
        ("ΐδια λέξη", {"GREEK"}),
        ("日本のテレビをみる", {"CJK", "HIRAGANA", "KATAKANA"}),
        ("हिन्दी", {"DEVANAGARI"}),
        ("한국어 K-pop", {"HANGUL", "LATIN"}),
        ("12,5 % – «…» ١٢ ́ ー 😀\n▁", set()),
    ],
)
def test_letters_and_their_marks_have_a_script_and_nothing_else_has(text, scripts):
    assert scripts_of_text(text) == scripts


@given(st.text())
def test_any_text_has_the_scripts_of_its_characters(text):
    assert scripts_of_text(text) == frozenset().union(*map(scripts_of_text, text))


def test_every_language_has_a_script_and_what_is_no_language_has_none():
    assert all(scripts_of_language(code) for code in NAMES)
    assert scripts_of_language("sr") == {"CYRILLIC", "LATIN"}
    assert scripts_of_language("ast") == frozenset()


def test_several_languages_have_the_scripts_of_all_and_one_that_is_not_known_has_all():
    assert allowed_scripts(SCRIPTS, ["pl"]) == {"LATIN"}
    assert allowed_scripts(SCRIPTS, ["pl", "el"]) == {"LATIN", "GREEK"}
    assert allowed_scripts(SCRIPTS, []) == allowed_scripts(SCRIPTS, ["pl", "ast"]) == SCRIPTS


def test_a_language_without_a_script_of_the_model_leaves_it_its_own():
    assert allowed_scripts({"LATIN"}, ["ru"]) == {"LATIN"}
    assert not tells_apart("ru", {"LATIN"}, ["ru", "en"])


def test_a_script_tells_a_language_from_those_of_other_scripts_only():
    assert [code for code in EUROPEAN if tells_apart(code, SCRIPTS, EUROPEAN)] == ["el"]
    assert tells_apart("ru", SCRIPTS, ["ru", "en", "el"])
    assert not tells_apart("en", SCRIPTS, NAMES)
    assert not tells_apart("el", set(), EUROPEAN)


@given(st.sets(st.sampled_from(sorted({script for code in NAMES for script in scripts_of_language(code)}))))
def test_a_narrow_language_leaves_out_a_script(scripts):
    language = a_narrow_language(scripts)

    assert (language is None) == (len(scripts) < 2)
    assert language is None or 0 < len(allowed_scripts(scripts, [language])) < len(scripts)
