"""The language of a recording and of its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.spoken_language import LanguageDecision, Spoken, language_of_label, possible_languages

PROBABILITIES = st.fixed_dictionaries({code: st.floats(0, 1) for code in ("de", "en", "fr", "ja")})


@pytest.mark.parametrize(
    ("label", "language"),
    [
        *(("en", "en"), ("zh-CN", "zh"), ("pt_BR", "pt"), ("EN", "en"), ("iw", "he"), ("jw", "jv"), ("ceb", "ceb")),
        *(("OTHER", "OTHER"), ("not a language", "not a language"), ("", "")),
    ],
)
def test_labels(label, language):
    assert language_of_label(label) == language


def test_the_first_part_has_its_likeliest_language():
    decision = LanguageDecision(["de", "en"])

    assert decision.add({"de": 0.5, "en": 0.3, "ja": 0.2}, 4.0) == Spoken("de", 0.5)
    assert decision.whole == Spoken("de", 0.5)


@pytest.mark.parametrize(
    ("before", "seconds", "part", "spoken", "whole"),
    [
        ((0.9, 20.0), 10.0, (0.3, 0.7), Spoken("de", 0.3), Spoken("de", (18 + 3) / 30)),
        ((0.9, 20.0), 10.0, (0.05, 0.95), Spoken("en", 0.95), Spoken("de", (18 + 0.5) / 30)),
        ((0.9, 20.0), 1.0, (0.0, 1.0), Spoken("de", 0.0), Spoken("de", 18 / 21)),
        ((0.5, 1.0), 10.0, (0.3, 0.7), Spoken("en", 0.7), Spoken("en", (0.5 + 7) / 11)),
    ],
    ids=["not sure", "certain", "short", "a wrong beginning"],
)
def test_a_part_has_the_language_of_the_recording_unless_it_is_long_and_certain(before, seconds, part, spoken, whole):
    decision = LanguageDecision(["de", "en"])
    decision.add({"de": before[0], "en": 1 - before[0]}, before[1])

    assert decision.add(dict(zip(("de", "en"), part, strict=True)), seconds) == spoken
    assert decision.whole == (whole.language, pytest.approx(whole.probability))


def test_a_language_that_cannot_be_written_is_not_chosen_and_leaves_little_probability():
    decision = LanguageDecision(["de", "en"])

    assert decision.add({"ja": 0.98, "en": 0.015, "de": 0.005}, 9.0) == Spoken("en", 0.015)


def test_if_nothing_else_can_be_spoken_the_probability_is_among_what_can():
    decision = LanguageDecision(["de", "en"], is_exhaustive=True)

    language, probability = decision.add({"ja": 0.6, "en": 0.3, "de": 0.1}, 9.0)

    assert (language, probability) == ("en", pytest.approx(0.75))


@given(
    parts=st.lists(st.tuples(PROBABILITIES, st.floats(0.1, 40)), min_size=1, max_size=8),
    possible=st.lists(st.sampled_from(["de", "en", "fr", "sv"]), min_size=1, unique=True),
    is_exhaustive=st.booleans(),
)
def test_every_part_has_a_possible_language_and_a_probability(parts, possible, is_exhaustive):
    decision = LanguageDecision(possible, is_exhaustive)

    for spoken in [*(decision.add(*part) for part in parts), decision.whole]:
        assert spoken.language in possible
        assert 0 <= spoken.probability <= 1 + 1e-9


def test_a_translation_is_from_or_into_english():
    assert possible_languages(["de", "en", "fr"], None) == ["de", "en", "fr"]
    assert possible_languages(["de", "en", "fr"], "en") == ["de", "en", "fr"]
    assert possible_languages(["de", "en", "fr"], "fr") == ["en", "fr"]


def test_before_the_first_part_nothing_is_known():
    assert LanguageDecision(["de"]).whole is None
