"""Translating a folder of Cohere Transcribe: a ParakeetEncoder and Canary's decoder, asked by another prompt.

The decoder's output layer has weights of its own, and its table of positions is in the file. transformers reads two
sets of names of tensors, and writes the older one, NeMo's.
"""

from models.checkpoint.nemo.names import is_bookkeeping, nemo_names
from models.checkpoint.section import Section
from models.checkpoint.transformers.canary import canary_names, decoder_config
from models.config import AttentionDecoderConfig, EncoderConfig, PromptConfig

CLASS = "CohereAsrForConditionalGeneration"
# Those of transformers' processor, which refuses others; the vocabulary has tags of more.
_LANGUAGES = ("ar", "de", "el", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "vi", "zh")
# The encoder where a configuration says nothing, or not all.
_ENCODER = {
    "model_type": "parakeet_encoder",
    "hidden_size": 1280,
    "num_hidden_layers": 48,
    "num_attention_heads": 8,
    "intermediate_size": 5120,
    "num_mel_bins": 128,
    "scale_input": False,
}
_DEFAULT_LANGUAGE = "en"
_ELSEWHERE = {
    "attention_decoder.positions": "model.decoder.pos_emb.weight",
    "attention_decoder.output_weight": "proj_out.weight",
    "attention_decoder.encoder_projection.weight": "model.decoder.proj.weight",
    "attention_decoder.encoder_projection.bias": "model.decoder.proj.bias",
}


def is_as_released(root: Section) -> bool:
    """Return whether a configuration is the published one: NeMo's sections, of which transformers' class reads none."""
    return root.get("encoder_config") is None and root.get("encoder") is not None


def check_released(root: Section) -> None:
    """Check that NeMo's sections of the published configuration say what transformers' class does.

    Sizes need no check, because tensors have them.

    Raises:
        UnsupportedValueError: if they do not.
    """
    encoder = root.section("encoder")
    encoder.expect("xscaling", None, False)
    encoder.expect("self_attention_model", None, "rel_pos")
    encoder.expect("att_context_size", None, [-1, -1])
    encoder.expect("conv_norm_type", None, "batch_norm")
    encoder.expect("causal_downsampling", None, False)
    decoder = root.section("transf_decoder").section("config_dict")
    decoder.expect("hidden_act", None, root.get("hidden_act", "relu"))
    decoder.expect("pre_ln", None, True)
    root.section("preprocessor").expect("normalize", None, "per_feature")


def encoder_section(root: Section) -> Section:
    """Return the encoder's section with the defaults of this class."""
    given = root.get("encoder_config")
    root.section("encoder_config")  # raises if it is none
    return Section("encoder_config", _ENCODER | (given or {}))


def parse_prompts(root: Section) -> PromptConfig:
    """Return the prompts, in the languages of the configuration, else in those of the published model."""
    languages = root.strings("supported_languages") or _LANGUAGES
    default = _DEFAULT_LANGUAGE if _DEFAULT_LANGUAGE in languages else languages[0]
    return PromptConfig(format="cohere", languages=tuple(languages), default_language=default, timestamps=False)


def parse_decoder(root: Section, encoder_width: int) -> AttentionDecoderConfig:
    """Translate the decoder over an encoder of ``encoder_width``; its keys are at the root."""
    config = decoder_config(root, root, length_margin=None, tied=False)
    root.require("hidden_size", config.width != encoder_width, f"another than the encoder's, {encoder_width}")
    root.expect("num_key_value_heads", None, config.heads)
    root.expect("head_dim", None, config.width // config.heads)
    return config


def cohere_names(name: str, encoder: EncoderConfig) -> tuple[str, ...]:
    """Return transformers' possible names of a parameter or buffer of a model with this encoder."""
    nemo = nemo_names(name, encoder)[0]
    new = _ELSEWHERE[name] if name in _ELSEWHERE else canary_names(name, encoder)[0]
    return f"model.{nemo}", nemo, new


def is_unused(name: str) -> bool:
    """Return whether a tensor changes no transcript; transformers computes the front end's window and bands."""
    return is_bookkeeping(name) or name.startswith("preprocessor.featurizer.")
