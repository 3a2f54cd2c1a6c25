"""Translating NeMo's configuration of a speaker label model that was trained to identify languages (AmberNet)."""

import re
from typing import Any

from models.checkpoint.nemo.front_end import parse_front_end
from models.checkpoint.nemo.jasper import parse_jasper
from models.checkpoint.nemo.root import root_section
from models.checkpoint.section import Section
from models.config import IdentifierConfig, Pooling

CLASS = "EncDecSpeakerLabelModel"

_POOLINGS: dict[str, Pooling] = {"xvector": "statistics", "attention": "attention"}
_DEFAULT_EMBEDDING = 256
_MOST_EMBEDDINGS = 8
_MAX_WIDTH = 2**14
_MOST_LABELS = 10_000
# en, zh-CN. Codes of three letters (ceb) are labels of languages as well, but so may names of speakers be (bob), and
# models with prompts have none of those languages.
_LANGUAGE = re.compile(r"[A-Za-z]{2}(?:[-_][A-Za-z0-9]{2,8})*")


def parse_identifier(document: dict[Any, Any]) -> IdentifierConfig:
    """Translate a configuration.

    Raises:
        UnsupportedValueError: naming the first key that asks for something else than we do.
    """
    root = root_section(document)
    name = root.text("target").rpartition(".")[2]
    root.require("target", name == CLASS, f"{CLASS}, which language identifiers are")
    features = parse_front_end(root.section("preprocessor"), _sample_rate(root))
    section = root.section("encoder")
    section.class_name("_target_", ("ConvASREncoder",))
    encoder = parse_jasper(section, features.mels)
    labels = _labels(root, features.sample_rate)
    decoder = root.section("decoder")
    pooling, attention_width = _pooling(decoder)
    config = IdentifierConfig(
        name=name,
        features=features,
        encoder=encoder,
        labels=labels,
        pooling=pooling,
        attention_width=attention_width,
        embedding_widths=_embedding_widths(decoder),
    )
    decoder.class_name("_target_", ("SpeakerDecoder",))
    decoder.expect("feat_in", encoder.width)
    decoder.expect("num_classes", len(labels))
    # Angular logits are cosines, whose scale is a setting of the training loss.
    decoder.expect("angular", False, None)
    decoder.ignore("init_mode")
    decoder.refuse_the_rest(unless_off=True)
    return config


def _sample_rate(root: Section) -> int:
    default = root.section("preprocessor").get("sample_rate", 16_000)
    return root.integer("sample_rate", default, low=1000, high=384_000)


def _labels(root: Section, sample_rate: int) -> tuple[str, ...]:
    """Return the labels, at least one of which has the form of a code in ISO 639-1.

    NeMo identifies audio at the rate of the training data, so that must be the rate of the features.
    """
    data = root.section("train_ds")
    data.expect("sample_rate", None, sample_rate)
    labels = data.strings("labels")
    data.require("labels", 2 <= len(labels) <= _MOST_LABELS, f"2 to {_MOST_LABELS} labels")
    are_languages = any(_LANGUAGE.fullmatch(label) for label in labels)
    data.require("labels", are_languages, "some codes of languages, such as en or zh-CN")
    return labels


def _pooling(decoder: Section) -> tuple[Pooling, int]:
    """Return the pooling, and the inner width of its attention, 0 without attention."""
    mode = decoder.get("pool_mode", "xvector")
    known = isinstance(mode, str) and mode.lower() in _POOLINGS
    decoder.require("pool_mode", known, ", ".join(_POOLINGS))
    pooling = _POOLINGS[mode.lower()]
    width = decoder.integer("attention_channels", 128, high=_MAX_WIDTH)
    return pooling, width if pooling == "attention" else 0


def _embedding_widths(decoder: Section) -> tuple[int, ...]:
    if isinstance(decoder.get("emb_sizes", _DEFAULT_EMBEDDING), int):
        return (decoder.integer("emb_sizes", _DEFAULT_EMBEDDING, high=_MAX_WIDTH),)
    widths = decoder.integers("emb_sizes", low=1, high=_MAX_WIDTH)
    decoder.require("emb_sizes", 0 < len(widths) <= _MOST_EMBEDDINGS, f"1 to {_MOST_EMBEDDINGS} whole numbers")
    return widths
