"""Translating NeMo's configuration of a model, ``model_config.yaml``, into ours.

Absent keys have NeMo's defaults. Each key of the preprocessor and the encoder is used, required to have a supported
value, ignored because it cannot change a transcript, or refused by name; keys of the heads and of decoding, too, except
for unknown ones that are off. Other sections, such as those of training data, are not checked.
"""

from dataclasses import dataclass
from typing import Any

from models.checkpoint.nemo.canary import files_of_parts, parse_attention_decoder, parse_prompts, tokenizer_files
from models.checkpoint.nemo.encoder import parse_encoder
from models.checkpoint.nemo.front_end import parse_front_end
from models.checkpoint.nemo.heads import check_ctc, parse_transducer
from models.checkpoint.nemo.identifier import CLASS as IDENTIFIER_CLASS
from models.checkpoint.nemo.root import root_section
from models.checkpoint.section import Section
from models.config import ANY_LANGUAGE, LanguagePromptConfig, ModelConfig
from models.errors import OtherPurposeError

_MAX_VOCABULARY = 1_000_000
_MAX_SECONDS = 1_000_000
_DEFAULT_PROMPTS, _MAX_PROMPTS = 128, 4096
_MAX_PARTS = 256
_BESIDE_A_MODEL = "one that identifies languages can be given with a model, as its language identifier"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The parts of a model class of NeMo."""

    subwords: bool
    ctc: bool
    transducer: bool
    attention: bool = False
    prompted: bool = False


_KINDS = {
    "EncDecCTCModel": _Kind(subwords=False, ctc=True, transducer=False),
    "EncDecCTCModelBPE": _Kind(subwords=True, ctc=True, transducer=False),
    "EncDecRNNTModel": _Kind(subwords=False, ctc=False, transducer=True),
    "EncDecRNNTBPEModel": _Kind(subwords=True, ctc=False, transducer=True),
    "EncDecHybridRNNTCTCModel": _Kind(subwords=False, ctc=True, transducer=True),
    "EncDecHybridRNNTCTCBPEModel": _Kind(subwords=True, ctc=True, transducer=True),
    "EncDecRNNTBPEModelWithPrompt": _Kind(subwords=True, ctc=False, transducer=True, prompted=True),
    "EncDecHybridRNNTCTCBPEModelWithPrompt": _Kind(subwords=True, ctc=True, transducer=True, prompted=True),
    "EncDecMultiTaskModel": _Kind(subwords=True, ctc=False, transducer=False, attention=True),
}


@dataclass(frozen=True, slots=True)
class NemoModel:
    """A translated configuration.

    Attributes:
        config: the model's configuration.
        tokenizer_files: base names of the tokenizer's files in the checkpoint: none for characters, several for an
            aggregate vocabulary, in the order of their ids.
        tokenizer_names: labels of the languages of an aggregate vocabulary's parts; empty for any other.
        labels: the characters of a model without subwords.
    """

    config: ModelConfig
    tokenizer_files: tuple[str, ...]
    tokenizer_names: tuple[str, ...]
    labels: tuple[str, ...]


def parse_nemo_config(document: dict[Any, Any], *, has_aligner: bool = False) -> NemoModel:
    """Translate a configuration.

    Args:
        document: the configuration.
        has_aligner: whether the checkpoint has a second model, which finds times for the first.

    Returns:
        The translation. An attention decoder's vocabulary size is the number of outputs, up to seven more than there
        are labels, because the configuration does not say more.

    Raises:
        UnsupportedValueError: naming the first key that asks for something else than we do.
        OtherPurposeError: if it is that of a language identifier.
    """
    root = root_section(document)
    if root.text("target").rpartition(".")[2] == IDENTIFIER_CLASS:
        raise OtherPurposeError(f"{IDENTIFIER_CLASS} transcribes nothing; {_BESIDE_A_MODEL}")
    name = root.class_name("target", _KINDS)
    kind = _KINDS[name]
    sample_rate = root.integer("sample_rate", 16_000, low=1000, high=384_000)
    features = parse_front_end(root.section("preprocessor"), sample_rate)
    encoder = parse_encoder(root.section("encoder"), features.mels)
    labels = _labels(root)
    if not kind.subwords:
        root.section("decoder").require("vocabulary", bool(labels), "the labels of a model of characters")
    config = ModelConfig(
        name=name,
        features=features,
        encoder=encoder,
        vocabulary_size=_vocabulary_size(root, kind, labels),
        ctc=kind.ctc,
        transducer=parse_transducer(root, encoder.width) if kind.transducer else None,
        attention=parse_attention_decoder(root, encoder.width) if kind.attention else None,
        prompts=parse_prompts(root, has_aligner=has_aligner) if kind.attention else None,
        trained_seconds=_trained_seconds(root),
        language_prompts=_language_prompts(root) if kind.prompted else None,
    )
    if kind.ctc:
        check_ctc(root.section("aux_ctc") if kind.transducer else root, encoder.width)
    return NemoModel(config, *_tokenizer(root.section("tokenizer"), kind), labels)


def _trained_seconds(root: Section) -> float | None:
    """Return the length of the longest training clips; None if it is absent or not a sensible number."""
    data = root.get("train_ds")
    longest = data.get("max_duration") if isinstance(data, dict) else None
    if not isinstance(longest, int | float) or isinstance(longest, bool) or not 0 < longest < _MAX_SECONDS:
        return None
    return float(longest)


def _language_prompts(root: Section) -> LanguagePromptConfig:
    defaults = root.section("model_defaults")
    defaults.require("initialize_prompt_feature", defaults.get("initialize_prompt_feature") is True, "true")
    size = root.integer("num_prompts", defaults.get("num_prompts", _DEFAULT_PROMPTS), high=_MAX_PROMPTS)
    places = defaults.section("prompt_dictionary")
    named = tuple((name, places.integer(name, low=0, high=size - 1)) for name in places.names())
    defaults.require("prompt_dictionary", ANY_LANGUAGE in places.names(), f"names of languages, {ANY_LANGUAGE} of them")
    return LanguagePromptConfig(named, size)


def _labels(root: Section) -> tuple[str, ...]:
    decoder, joint = root.section("decoder"), root.section("joint")
    return decoder.strings("vocabulary") or joint.strings("vocabulary") or root.strings("labels")


def _vocabulary_size(root: Section, kind: _Kind, labels: tuple[str, ...]) -> int:
    """Return the number of labels. All places that give it must agree."""
    decoder, joint, ctc = root.section("decoder"), root.section("joint"), root.section("aux_ctc").section("decoder")
    places = [(decoder, "vocab_size"), (joint, "num_classes")] if kind.transducer else [(decoder, "num_classes")]
    if kind.transducer and kind.ctc:
        places.append((ctc, "num_classes"))
    if kind.attention:
        transformer = root.section("transf_decoder").section("config_dict")
        places = [(root.section("head"), "num_classes"), (transformer, "vocab_size")]
    size = len(labels)
    for section, key in places:
        value = section.get(key)
        if value is None or (isinstance(value, int) and value <= 0):  # NeMo then counts the labels
            continue
        size = size or section.integer(key, high=_MAX_VOCABULARY)
        section.expect(key, size)
    section, key = places[0]
    section.require(key, 0 < size <= _MAX_VOCABULARY, f"1 to {_MAX_VOCABULARY} labels")
    return size


def _tokenizer(section: Section, kind: _Kind) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ``tokenizer_files`` and ``tokenizer_names`` of a model."""
    if kind.attention:
        return tokenizer_files(section), ()
    if not kind.subwords:
        return (), ()
    section.expect("type", "bpe", "agg")
    section.expect("custom_tokenizer", None)
    if section.get("type") != "agg":
        return (section.file_name("model_path"),), ()
    parts = section.section("langs")
    names = parts.names()
    section.require("langs", 0 < len(names) <= _MAX_PARTS, f"1 to {_MAX_PARTS} vocabularies by their languages")
    return files_of_parts(parts), names
