import pytest

from transcripts.languages import NAMES, language_code


@pytest.mark.parametrize("code", NAMES)
def test_a_code_and_its_name_are_the_same_language(code):
    assert language_code(code) == language_code(NAMES[code]) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "en") for text in ("en", "EN", " en ", "en-US", "en_GB", "en-Latn-US", "English", "eng", "eng-US")),
        *(("ger", "de"), ("deu", "de"), ("fas", "fa"), ("mandarin", "zh"), ("zho-Hans", "zh"), ("Castilian", "es")),
    ],
)
def test_a_language_has_a_code_however_it_is_spelt(text, code):
    assert language_code(text) == code


@pytest.mark.parametrize("text", ["", "xx", "xxx", "e", "klingon", "en-", "-US", "en US", "en-US\n-x", "日本"])
def test_an_unknown_language_is_refused(text):
    with pytest.raises(ValueError, match="is not a language: use a code"):
        language_code(text)


def test_a_refusal_is_short_however_long_the_text():
    with pytest.raises(ValueError, match="is not") as refusal:
        language_code("a language " * 100_000)

    assert len(str(refusal.value)) < 120
