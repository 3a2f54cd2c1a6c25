"""Models of several languages have a vocabulary for each, one after the other, as NeMo's stt_enes and stt_multilingual.

The golden models have 128 labels, so two vocabularies of 64 give them NeMo's tokens with other texts.
"""

import json

import pytest
import sentencepiece

from models import load_model
from models.errors import UnreadableCheckpointError, UnsafeCheckpointError, UnsupportedValueError
from tests.conftest import GOLDEN
from tests.models import golden_data as golden
from tests.models.checkpoint.nemo_files import TOKENIZER, archive, golden_document, golden_members, refusal, with_config
from tests.models.checkpoint.sentencepiece_models import sentencepiece_model

MODELS = ("fastconformer-ctc-bpe", "fastconformer-rnnt-bpe", "hybrid-tdt-ctc-bpe")
SENTENCES = {
    "en": ("the quick brown fox jumps over the lazy dog", "pack my box with five dozen jugs") * 20,
    "es": ("el veloz murciélago hindú comía feliz cardillo y kiwi", "la cigüeña tocaba el saxofón, señor") * 20,
}


def vocabulary(language):
    return sentencepiece_model(64, sentences=SENTENCES[language], bos_id=-1, eos_id=-1)


def pieces(language):
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary(language))
    return [processor.id_to_piece(token) for token in range(64)]


def members(name, section, **files):
    document = golden_document(name)
    document["tokenizer"] = section
    given = golden_members(name) | {f"{language}.model": vocabulary(language) for language in SENTENCES} | files
    del given[TOKENIZER]
    return with_config(given, document)


def parts(**languages):
    named = {name: {"dir": name, "type": "bpe", "model_path": f"nemo:{file}.model"} for name, file in languages.items()}
    return {"type": "agg", "langs": named}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.nemo"


@pytest.mark.facts("golden")
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_nemos_texts_are_the_pieces_and_each_token_has_its_language(name, path):
    model = load_model(archive(path, members(name, parts(en="en", es="es"))))
    facts = json.loads((GOLDEN / name / "expected.json").read_text(encoding="utf-8"))["clips"]
    of_labels = pieces("en") + pieces("es")

    assert model.languages == ["en", "es"]
    assert model.info()["vocabulary"] == {"kind": "aggregate", "size": 128}
    assert model.model.language_tags == {token: "en" if token < 64 else "es" for token in range(128)}
    for decoder in model.decoders:
        for clip, found in zip(golden.CLIPS, model.transcribe(golden.clips(), decoder=decoder), strict=True):
            head = facts[clip]["alone"]["ctc" if decoder == "ctc" else "transducer"]
            assert found.tokens == head["tokens"]
            # NeMo's join (ids_to_text of its AggregateTokenizer), which leaves a space before the first word.
            text = "".join(of_labels[token] for token in head["tokens"]).replace("▁", " ")
            assert found.text == text.replace(" ,", ",").strip(" ")
            assert " ".join(word.text for word in found.words).split() == found.text.split()


@pytest.mark.facts("golden")
def test_names_may_have_regions_and_those_that_are_no_languages_name_none(path):
    regional = load_model(archive(path, members(MODELS[0], parts(**{"en-US": "en", "es-ES": "es"}))))
    other = load_model(archive(path, members(MODELS[0], parts(en="en", other="es"))))

    assert regional.languages == ["en", "es"]
    assert other.languages is None
    assert set(other.model.language_tags.values()) == {"en"}


@pytest.mark.facts("golden")
@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"type": "agg"}, "tokenizer.langs"),
        ({"type": "agg", "langs": {}}, "tokenizer.langs"),
        ({"type": "agg", "langs": {str(part): {} for part in range(257)}}, "tokenizer.langs"),
        ({"type": "agg", "langs": {1: {}}}, "tokenizer.langs.1"),
        ({"type": "agg", "langs": {"en": {"type": "bpe"}}}, "tokenizer.langs.en.model_path"),
        ({"type": "agg", "langs": {"en": {"type": "wpe", "vocab_path": "nemo:v.txt"}}}, "tokenizer.langs.en.type"),
        (parts(en="en", es="es") | {"custom_tokenizer": {"_target_": "CanaryTokenizer"}}, "tokenizer.custom_tokenizer"),
        (parts(en="en"), "the number of labels"),
    ],
    ids=lambda one: str(one)[:60],
)
def test_another_vocabulary_of_several_parts_is_refused_by_name(section, key, path):
    error = refusal(archive(path, members(MODELS[0], section)))

    assert isinstance(error, UnsupportedValueError)
    assert error.key == key


@pytest.mark.facts("golden")
@pytest.mark.parametrize(
    ("section", "kind"),
    [
        (parts(en="en", es="en"), UnsafeCheckpointError),
        ({"type": "agg", "langs": ["en"]}, UnreadableCheckpointError),
        ({"type": "agg", "langs": {"en": "nemo:en.model"}}, UnreadableCheckpointError),
        (parts(en="en", es="nothing"), UnreadableCheckpointError),
        (parts(en="en", es="broken"), UnreadableCheckpointError),
    ],
    ids=lambda one: str(one)[:60],
)
def test_parts_that_are_not_there_or_there_twice_are_refused(section, kind, path):
    assert isinstance(refusal(archive(path, members(MODELS[0], section, **{"broken.model": b"no model"}))), kind)
