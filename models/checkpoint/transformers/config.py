"""Translating transformers' configuration of a model, ``config.json``, into ours.

Absent keys have transformers' defaults. Each key is used, required to have a supported value, ignored because it
cannot change a transcript, or refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.checkpoint.nemo.decoding import MAX_DURATION
from models.checkpoint.section import Section
from models.checkpoint.transformers import cohere
from models.checkpoint.transformers.canary import PROMPTS, end_token, parse_decoder
from models.checkpoint.transformers.encoder import ignore_bookkeeping, parse_encoder, parse_streaming_encoder
from models.checkpoint.transformers.front_end import COHERE, FOR_STREAMS, PLAIN, parse_front_end
from models.config import ANY_LANGUAGE, Decoder, LanguagePromptConfig, ModelConfig, TransducerConfig
from models.errors import UnsupportedValueError

_MAX_VOCABULARY = 1_000_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """A model class of transformers.

    Attributes:
        name: name of the class.
        decoder: its only decoder.
        vocabulary: its default number of labels without the blank.
        for_streams: whether its encoder is that for streams.
        prompted: whether its encoder's frames are given a language.
    """

    name: str
    decoder: Decoder
    vocabulary: int
    for_streams: bool = False
    prompted: bool = False


_KINDS = {
    "parakeet_ctc": _Kind("ParakeetForCTC", "ctc", 1024),
    "parakeet_rnnt": _Kind("ParakeetForRNNT", "rnnt", 8192),
    "parakeet_tdt": _Kind("ParakeetForTDT", "tdt", 8192),
    "nemotron_asr_streaming": _Kind("NemotronAsrStreamingForRNNT", "rnnt", 1024, for_streams=True),
    "nemotron3_5_asr": _Kind("Nemotron3_5AsrForRNNT", "rnnt", 13087, for_streams=True, prompted=True),
    "canary": _Kind("CanaryForConditionalGeneration", "aed", 16384),
    "cohere_asr": _Kind(cohere.CLASS, "aed", 16384),
}
_DEFAULT_PROMPTS, _DEFAULT_PLACE, _MAX_PROMPTS = 128, 101, 4096
_DEFAULT_DURATIONS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Documents:
    """The configurations of a folder.

    Attributes:
        config: ``config.json``.
        generation: ``generation_config.json``; empty if there is none.
        processor: ``processor_config.json``; empty if there is none.
        feature_extractor: the processor's section, or ``preprocessor_config.json``.
    """

    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    processor: Mapping[str, Any]
    feature_extractor: Mapping[str, Any]


def parse_transformers_config(documents: Documents) -> ModelConfig:
    """Translate the configurations of a model.

    Raises:
        UnsupportedValueError: naming the first key that asks for something else than we do.
    """
    root = Section("", documents.config)
    kind = _kind(root)
    root.expect("architectures", None, [kind.name])
    if kind.decoder == "aed":
        return _with_attention_decoder(root, kind, documents)
    size = root.integer("vocab_size", kind.vocabulary + 1, low=2, high=_MAX_VOCABULARY + 1)
    blank = size - 1
    processor = Section("processor_config", documents.processor)
    encoders_section = root.section("encoder_config")
    encoder = (
        parse_streaming_encoder(encoders_section, processor) if kind.for_streams else parse_encoder(encoders_section)
    )
    prompts = _language_prompts(root, processor, encoder.width) if kind.prompted else None
    transducer = None
    if kind.decoder == "ctc":
        _expect_last(root, "pad_token_id", kind.vocabulary, blank)
        root.ignore("ctc_loss_reduction", "ctc_zero_infinity")
    else:
        _expect_last(root, "blank_token_id", kind.vocabulary, blank)
        transducer = _transducer(root, kind)
        _check_transducer_generation(Section("generation_config", documents.generation), blank)
    ignore_bookkeeping(root)
    root.refuse_the_rest()
    _check_processor(processor, kind)
    extractor = Section("feature_extractor", documents.feature_extractor)
    return ModelConfig(
        kind.name,
        parse_front_end(extractor, encoder.mels, FOR_STREAMS if kind.for_streams else PLAIN),
        encoder,
        vocabulary_size=blank,
        ctc=transducer is None,
        transducer=transducer,
        language_prompts=prompts,
    )


def _language_prompts(root: Section, processor: Section, width: int) -> LanguagePromptConfig:
    size = root.integer("num_prompts", _DEFAULT_PROMPTS, high=_MAX_PROMPTS)
    root.require("prompt_intermediate_size", root.get("prompt_intermediate_size", 2048) == 2 * width, str(2 * width))
    processor.expect("num_prompts", size)
    places = processor.section("prompt_dictionary")
    named = tuple((name, places.integer(name, low=0, high=size - 1)) for name in places.names())
    default = root.integer("default_prompt_id", _DEFAULT_PLACE, low=0, high=size - 1)
    processor.require("prompt_dictionary", (ANY_LANGUAGE, default) in named, f"names, {ANY_LANGUAGE} of {default}")
    return LanguagePromptConfig(named, size)


def _with_attention_decoder(root: Section, kind: _Kind, documents: Documents) -> ModelConfig:
    is_cohere = kind.name == cohere.CLASS
    encoder = parse_encoder(cohere.encoder_section(root) if is_cohere else root.section("encoder_config"))
    attention = (cohere.parse_decoder if is_cohere else parse_decoder)(root, encoder.width)
    _check_attention_generation(Section("generation_config", documents.generation), end_token(root))
    prompts = cohere.parse_prompts(root) if is_cohere else PROMPTS
    if is_cohere and cohere.is_as_released(root):
        cohere.check_released(root)
    else:
        ignore_bookkeeping(root)
        root.refuse_the_rest()
    processor = Section("processor_config", documents.processor)
    if is_cohere:
        processor.ignore("auto_map")
    _check_processor(processor, kind)
    extractor = Section("feature_extractor", documents.feature_extractor)
    return ModelConfig(
        kind.name,
        parse_front_end(extractor, encoder.mels, COHERE if is_cohere else PLAIN),
        encoder,
        vocabulary_size=root.integer("vocab_size", kind.vocabulary, high=_MAX_VOCABULARY),
        ctc=False,
        transducer=None,
        attention=attention,
        prompts=prompts,
    )


def _kind(root: Section) -> _Kind:
    name = root.text("model_type")
    if name not in _KINDS:
        raise UnsupportedValueError("model_type", name, ", ".join(_KINDS))
    return _KINDS[name]


def _expect_last(root: Section, key: str, default: int, blank: int) -> None:
    last = root.integer(key, default, low=0, high=_MAX_VOCABULARY) == blank
    root.require(key, last, f"the last id of vocab_size, {blank}")


def _transducer(root: Section, kind: _Kind) -> TransducerConfig:
    width = root.integer("decoder_hidden_size", 640, high=2**14)
    root.expect("hidden_act", "relu")
    root.ignore("pad_token_id", "decoder_start_token_id")
    durations: tuple[int, ...] = ()
    if kind.decoder == "tdt":
        durations = root.integers("durations", low=0, high=MAX_DURATION) or _DEFAULT_DURATIONS
    else:
        root.expect("durations", None, [])
    return TransducerConfig(
        predictor_width=width,
        predictor_layers=root.integer("num_decoder_layers", 2, high=16),
        joint_width=width,
        durations=durations,
        max_symbols=root.integer("max_symbols_per_step", 10, high=100),
    )


def _check_processor(section: Section, kind: _Kind) -> None:
    section.expect("decoder_type", None, kind.decoder)
    section.ignore("blank_token", "feature_extractor", "processor_class")
    section.ignore("chat_template")  # Canary's prompts, which we write without it
    section.refuse_the_rest(unless_off=True)


def _check_transducer_generation(section: Section, blank: int) -> None:
    section.expect("decoder_start_token_id", None, blank)
    # The outputs of a TDT after the blank are durations, which a search for labels suppresses.
    suppressed = section.integers("suppress_tokens", low=0, high=2**31)
    section.require("suppress_tokens", all(token > blank for token in suppressed), f"ids above the blank, {blank}")
    _check_greedy(section)


def _check_attention_generation(section: Section, end: int) -> None:
    section.expect("eos_token_id", None, end, [end])
    section.ignore("decoder_start_token_id")  # the first token of every prompt
    section.ignore("max_length", "max_new_tokens")  # the audio bounds the text
    _check_greedy(section)


def _check_greedy(section: Section) -> None:
    section.expect("num_beams", None, 1)
    section.expect("do_sample", None, False)
    section.expect("repetition_penalty", None, 1, 1.0)
    section.ignore("_from_model_config", "transformers_version", "use_cache", "return_dict_in_generate")
    section.ignore("output_attentions", "output_hidden_states", "output_scores", "output_logits")
    section.ignore("pad_token_id", "bos_token_id", "eos_token_id")
    section.ignore("temperature", "top_k", "top_p", "min_p", "typical_p")  # options of sampling
    section.refuse_the_rest(unless_off=True)
