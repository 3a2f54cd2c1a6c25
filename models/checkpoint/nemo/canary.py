"""Translating the decoder, head, vocabulary and prompts of a NeMo configuration of a multi-task model (Canary)."""

import re
from typing import cast

from models.checkpoint.nemo.decoding import attention_decoding
from models.checkpoint.section import Section
from models.config import AttentionDecoderConfig, DecoderActivation, PromptConfig, PromptFormat
from models.errors import UnsupportedValueError

SPECIAL_PART = "spl_tokens"  # the part of an aggregate vocabulary with the special tokens

# NeMo's default where neither the user nor the checkpoint gives the spoken language.
_DEFAULT_LANGUAGE = "en"
_MAX_TURNS = 16
_LANGUAGE = re.compile(r"([a-z]{2})(?:-[A-Za-z]+)?")  # en, en-US
_LANGUAGE_TAG = re.compile(r"(?:<\|)?([a-z]{2})(?:\|>)?")  # <|en|>, en
# Of each slot of the default prompt but the languages, the values that ask for what our default prompt asks for.
_DEFAULT_SLOTS = {
    "decodercontext": ("",),
    "emotion": ("<|emo:undefined|>",),
    "task": ("<|transcribe|>", "asr", "transcribe"),
    "pnc": ("<|pnc|>", "pnc", "yes", True),
    "itn": ("<|noitn|>", "noitn", "no", False),
    "timestamp": ("<|notimestamp|>", "notimestamp", "no", False),
    "diarize": ("<|nodiarize|>", "nodiarize", "no", False),
}


def parse_attention_decoder(root: Section, encoder_width: int) -> AttentionDecoderConfig:
    """Translate the decoder and the head over an encoder of ``encoder_width``."""
    root.section("transf_encoder").expect("num_layers", 0)
    section = root.section("transf_decoder")
    section.class_name("_target_", ("get_nemo_transformer",))
    section.expect("pre_ln_final_layer_norm", True)
    section.expect("library", "nemo")
    section.ignore("config_dict")
    section.refuse_the_rest(unless_off=True)
    config = _decoder(section.section("config_dict"), *attention_decoding(root.section("decoding")))
    defaults = root.section("model_defaults")
    defaults.expect("asr_enc_hidden", encoder_width)
    defaults.expect("lm_dec_hidden", config.width)
    _check_head(root.section("head"), config.width)
    return config


def _decoder(section: Section, length_margin: int | None, beam: int, length_penalty: float) -> AttentionDecoderConfig:
    width = section.integer("hidden_size", high=2**14)
    heads = section.integer("num_attention_heads", high=256)
    section.require("hidden_size", width % 2 == 0 and width % heads == 0, f"even multiples of the {heads} heads")
    section.expect("hidden_act", "relu", "gelu")
    # Both must be there, because NeMo's defaults are not supported.
    section.require("pre_ln", section.get("pre_ln") is True, "true")
    section.require("num_token_types", section.get("num_token_types", 2) == 0, "0")
    # The file holds the table of positions, learned or not.
    section.ignore("learn_positional_encodings", "vocab_size", "pre_ln_final_layer_norm")
    section.ignore("embedding_dropout", "ffn_dropout", "attn_score_dropout", "attn_layer_dropout")
    config = AttentionDecoderConfig(
        width=width,
        layers=section.integer("num_layers", high=512),
        heads=heads,
        feed_forward_width=section.integer("inner_size", high=2**16),
        activation=cast("DecoderActivation", section.get("hidden_act", "relu")),
        positions=section.integer("max_sequence_length", 512, low=32, high=2**14),
        length_margin=length_margin,
        beam=beam,
        length_penalty=length_penalty,
    )
    section.refuse_the_rest(unless_off=True)
    return config


def _check_head(section: Section, width: int) -> None:
    section.class_name("_target_", ("TokenClassifier",))
    section.expect("num_layers", 1)
    section.expect("hidden_size", width)
    section.ignore("num_classes", "activation", "log_softmax", "dropout", "use_transformer_init")
    section.refuse_the_rest(unless_off=True)


def tokenizer_files(section: Section) -> tuple[str, ...]:
    """Return the base names of the SentencePiece models that make the vocabulary, in the order of their ids."""
    custom = section.section("custom_tokenizer")
    section.expect("type", "agg", "bpe")
    if section.text("type") == "bpe":
        custom.class_name("_target_", ("CanaryBPETokenizer",))
        return (section.file_name("model_path"),)
    custom.class_name("_target_", ("CanaryTokenizer",))
    parts = section.section("langs")
    parts.require(SPECIAL_PART, parts.names()[:1] == (SPECIAL_PART,), "the first part of the vocabulary")
    return files_of_parts(parts)


def files_of_parts(parts: Section) -> tuple[str, ...]:
    """Return the base names of the SentencePiece models of an aggregate vocabulary's ``parts``, in their order."""
    for name in parts.names():
        parts.section(name).expect("type", "bpe")
    return tuple(parts.section(name).file_name("model_path") for name in parts.names())


def parse_prompts(root: Section, *, has_aligner: bool) -> PromptConfig:
    """Translate the format of prompts and their defaults.

    The parts of an aggregate vocabulary are named after languages. With a single SentencePiece model there are no
    languages yet: they are found among its pieces (``prompted``).

    Args:
        root: the configuration.
        has_aligner: whether the checkpoint has a second model, which finds times; then the decoder writes none.
    """
    root.expect("prompt_format", "canary", "canary2")
    name = cast("PromptFormat", root.text("prompt_format"))
    parts = root.section("tokenizer").section("langs")
    spoken: dict[str, None] = {}
    for part in parts.names():
        if part != SPECIAL_PART:
            match = _LANGUAGE.fullmatch(part)
            if match is None:
                named = f"{SPECIAL_PART} and languages, by their codes in ISO 639-1"
                raise UnsupportedValueError(parts.key(part), part, named)
            spoken[match[1]] = None
    return PromptConfig(
        format=name,
        languages=tuple(spoken),
        default_language=_default_language(root),
        timestamps=name == "canary2" and not has_aligner,
    )


def _default_language(root: Section) -> str:
    """Return the spoken language of the default prompt, and check that its other slots ask for a plain transcript."""
    found = _DEFAULT_LANGUAGE
    turns = root.sections("prompt_defaults", most=_MAX_TURNS) if root.get("prompt_defaults") else []
    for turn in turns:
        if turn.get("role") != "user":
            continue
        slots = turn.section("slots")
        for slot, values in _DEFAULT_SLOTS.items():
            slots.expect(slot, None, *values)
        if slots.get("source_lang") is not None:
            tag = slots.text("source_lang")
            match = _LANGUAGE_TAG.fullmatch(tag)
            slots.require("source_lang", match is not None, "languages, by their codes in ISO 639-1")
            found = match[1] if match else tag
        slots.expect("target_lang", None, found, f"<|{found}|>")
        slots.refuse_the_rest(unless_off=True)
    return found
