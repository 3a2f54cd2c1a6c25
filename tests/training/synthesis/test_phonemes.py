import pytest

from tests.training.synthesis.recorded import SENTENCE
from training.synthesis.errors import UnusableSpeechError
from training.synthesis.phonemes import numbers, phonemes

ESPEAK = pytest.mark.program("espeak-ng")


@ESPEAK
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("now", "nˈW"),
        ("choice", "ʧˈYs"),
        ("judge", "ʤˈʌʤ"),
        ("go", "ɡˈO"),
        ("day", "dˈA"),
        ("bird", "bˈɜɹd"),
        ("store", "stˈɔɹ"),
        ("water", "wˈɔTəɹ"),
    ],
)
def test_words_are_written_as_kokoro_writes_them(word, said):
    assert phonemes(word) == said


@ESPEAK
def test_every_sign_has_a_number():
    said = phonemes(f"{SENTENCE} while measuring the other oily boys' eight thousand bottles of juice")

    assert len(numbers(said)) == len(said)


@ESPEAK
@pytest.mark.parametrize("sentence", ["-v is an option they said", "'; $(false) `false` it said"])
def test_a_sentence_is_never_taken_for_an_option(sentence):
    assert len(phonemes(sentence)) > 10


@ESPEAK
def test_names_of_languages_between_its_phonemes_are_not_read():
    assert phonemes("the water पानी now") == "ðə wˈɔTəɹ pˈani nˈW"  # eSpeak NG: "(hi)pˈaːni(en-us)"


def test_without_espeak_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UnusableSpeechError, match="the synthesizer failed"):
        phonemes(SENTENCE)


def test_signs_of_other_languages_have_no_number():
    assert numbers("ˈa字 ") == [156, 43, 16]
