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


def test_a_part_that_is_not_sure_has_the_language_of_the_recording():
    decision = LanguageDecision(["de", "en"])
    decision.add({"de": 0.9, "en": 0.1}, 20.0)

    assert decision.add({"de": 0.3, "en": 0.7}, 10.0) == Spoken("de", 0.3)
    assert decision.whole.language == "de"
    assert decision.whole.probability == pytest.approx((18 + 3) / 30)


def test_a_part_that_is_certain_to_be_in_another_language_has_that_one():
    decision = LanguageDecision(["de", "en"])
    decision.add({"de": 0.9, "en": 0.1}, 20.0)

    assert decision.add({"de": 0.05, "en": 0.95}, 10.0) == Spoken("en", 0.95)
    assert decision.whole.language == "de"


def test_a_part_of_a_second_does_not_change_the_language():
    decision = LanguageDecision(["de", "en"])
    decision.add({"de": 0.9, "en": 0.1}, 20.0)

    assert decision.add({"de": 0.0, "en": 1.0}, 1.0) == Spoken("de", 0.0)


def test_a_wrong_beginning_is_outvoted():
    decision = LanguageDecision(["de", "en"])
    decision.add({"de": 0.5, "en": 0.4}, 1.0)

    assert decision.add({"de": 0.3, "en": 0.7}, 10.0) == Spoken("en", 0.7)
    assert decision.whole.language == "en"


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
