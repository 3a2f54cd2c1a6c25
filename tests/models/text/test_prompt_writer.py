"""Prompts in both formats, and the errors for options that a model lacks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import Prompt, PromptError
from models.config import PromptConfig
from models.text.prompt_writer import PromptWriter, check_unprompted, required_pieces, translates, with_vocabulary

LANGUAGES = ("en", "de", "es", "fr")
CONFIG = PromptConfig("canary", LANGUAGES, "en", timestamps=False)
CONFIG2 = PromptConfig("canary2", LANGUAGES, "en", timestamps=True, itn=True)


class Pieces:
    """A vocabulary of the pieces that a configuration needs, and some others."""

    def __init__(self, config):
        self.pieces = ("<unk>", *dict.fromkeys(required_pieces(config)), "<|timestamp|>", "<|itn|>", "<|0|>", "a")

    def encode_prompt(self, pieces):
        return [self.pieces.index(piece) for piece in pieces]


def written(config, prompt):
    vocabulary = Pieces(config)
    return [vocabulary.pieces[token] for token in PromptWriter(config, vocabulary).tokens(prompt)]


@pytest.mark.parametrize(
    ("config", "prompt", "pieces"),
    [
        (CONFIG, Prompt("de", "en", punctuation=False), "startoftranscript de translate en nopnc"),
        (CONFIG, Prompt(), "startoftranscript en transcribe en pnc"),
        (
            CONFIG2,
            Prompt("fr", timestamps=True),
            "startofcontext startoftranscript emo:undefined fr fr pnc noitn timestamp nodiarize",
        ),
        (
            CONFIG2,
            Prompt(itn=True),
            "startofcontext startoftranscript emo:undefined en en pnc itn notimestamp nodiarize",
        ),
    ],
)
def test_a_prompt_names_languages_and_task_in_the_order_of_its_format(config, prompt, pieces):
    assert written(config, prompt) == [f"<|{piece}|>" for piece in pieces.split()]


languages = st.none() | st.sampled_from([*LANGUAGES, "it"])


@given(
    prompt=st.builds(Prompt, languages, languages, st.booleans(), st.booleans(), st.booleans()),
    config=st.sampled_from([CONFIG, CONFIG2]),
)
def test_prompts_of_a_model_are_of_one_length_or_refused_by_a_field(prompt, config):
    length = 5 if config is CONFIG else 9
    fault = None
    try:
        length = len(written(config, prompt))
    except PromptError as error:
        fault = error.field

    assert length == (5 if config is CONFIG else 9)
    assert fault is None or getattr(prompt, fault)


@pytest.mark.parametrize(
    ("config", "prompt", "field", "told"),
    [
        (CONFIG, Prompt(language="it"), "language", "it speaks en, de, es, fr"),
        (CONFIG, Prompt(target_language="it"), "target_language", "does not speak 'it'"),
        (CONFIG, Prompt("de", "fr"), "target_language", "from English and into it, not from 'de' into 'fr'"),
        (CONFIG, Prompt(timestamps=True), "timestamps", "does not write the times"),
        (CONFIG, Prompt(itn=True), "itn", "cannot be asked to write numbers"),
    ],
    ids=str,
)
def test_what_a_model_cannot_do_is_refused_by_its_field(config, prompt, field, told):
    with pytest.raises(PromptError, match=told) as caught:
        written(config, prompt)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (Prompt(language="de"), "language"),
        (Prompt(target_language="de"), "target_language"),
        (Prompt("en", "de"), "target_language"),
        (Prompt(punctuation=False), "punctuation"),
        (Prompt(itn=True), "itn"),
    ],
    ids=str,
)
def test_a_model_without_prompts_is_asked_for_what_it_does(prompt, field):
    with pytest.raises(PromptError) as caught:
        check_unprompted(prompt, ["en"], punctuates=True)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("prompt", "languages", "punctuates"),
    [
        (Prompt(), None, True),
        (Prompt("de", "de"), None, True),
        (Prompt("en", "en", punctuation=True, timestamps=True), ["en"], True),
        (Prompt(target_language="en"), ["en"], True),
        (Prompt(punctuation=False), None, False),
    ],
    ids=str,
)
def test_what_a_model_without_prompts_does_anyway_may_be_asked_for(prompt, languages, punctuates):
    check_unprompted(prompt, languages, punctuates=punctuates)


def test_without_named_languages_those_with_a_piece_are_spoken():
    config = with_vocabulary(PromptConfig("canary2", (), "en", timestamps=True), ["<|uk|>", "<|0|>", "<|de|>", "a"])

    assert config == PromptConfig("canary2", ("de", "uk"), "de", timestamps=False)
    assert not translates(config)


def test_times_need_their_pieces():
    assert with_vocabulary(CONFIG2, ["<|timestamp|>", "<|0|>"]).timestamps
    assert not with_vocabulary(CONFIG2, ["<|timestamp|>"]).timestamps
    assert not with_vocabulary(CONFIG, ["<|timestamp|>", "<|0|>"]).timestamps


@pytest.mark.parametrize(
    ("prompts", "pieces", "itn"),
    [("canary2", ["<|itn|>"], True), ("canary2", ["<|noitn|>"], False), ("canary", ["<|itn|>"], False)],
)
def test_a_model_with_the_piece_and_its_slot_can_be_asked_for_numbers(prompts, pieces, itn):
    assert with_vocabulary(PromptConfig(prompts, LANGUAGES, "en", timestamps=False), pieces).itn is itn
