"""Translating NeMo's configuration of a model, ``model_config.yaml``, into ours.

NeMo's defaults stand in for keys that are absent. A key is either used, expected to have a value that we do, ignored
because it cannot change a transcript, or refused by name.
"""

from dataclasses import dataclass
from typing import Any, cast

from models.checkpoint.errors import UnsupportedValueError
from models.checkpoint.nemo_decoding import MAX_DURATION, ctc_decoding, transducer_decoding
from models.checkpoint.section import Section
from models.config import Activation, ConformerConfig, FeatureConfig, ModelConfig, Subsampling, TransducerConfig

_MAX_VOCABULARY = 1_000_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a model class of NeMo has."""

    subwords: bool
    ctc: bool
    transducer: bool


_KINDS = {
    "EncDecCTCModel": _Kind(subwords=False, ctc=True, transducer=False),
    "EncDecCTCModelBPE": _Kind(subwords=True, ctc=True, transducer=False),
    "EncDecRNNTModel": _Kind(subwords=False, ctc=False, transducer=True),
    "EncDecRNNTBPEModel": _Kind(subwords=True, ctc=False, transducer=True),
    "EncDecHybridRNNTCTCModel": _Kind(subwords=False, ctc=True, transducer=True),
    "EncDecHybridRNNTCTCBPEModel": _Kind(subwords=True, ctc=True, transducer=True),
}
_KNOWN_FAMILIES = {
    "EncDecMultiTaskModel": "Canary",
    "ConvASREncoder": "Jasper, QuartzNet or Citrinet",
    "SqueezeformerEncoder": "Squeezeformer",
    "StatelessTransducerDecoder": "stateless predictor",
    "HATJoint": "hybrid autoregressive transducer",
}


@dataclass(frozen=True, slots=True)
class NemoModel:
    """What a configuration says.

    Attributes:
        config: the model.
        tokenizer_file: base name of the SentencePiece model within the checkpoint, or None for characters.
        labels: the characters of a model without SentencePiece.
    """

    config: ModelConfig
    tokenizer_file: str | None
    labels: tuple[str, ...]


def parse_nemo_config(document: dict[Any, Any]) -> NemoModel:
    """Translate a configuration.

    Raises:
        UnsupportedValueError: naming the first key that asks for something else than we do.
    """
    root = Section("", document)
    if "target" not in document and "model" in document:
        root = root.section("model")
    name = _class_name(root, "target", _KINDS)
    kind = _KINDS[name]
    features = _features(root.section("preprocessor"), root.integer("sample_rate", 16_000, low=1000, high=384_000))
    encoder = _encoder(root.section("encoder"), features.mels)
    labels = _labels(root)
    config = ModelConfig(
        name=name,
        features=features,
        encoder=encoder,
        vocabulary_size=_vocabulary_size(root, kind, labels),
        ctc=kind.ctc,
        transducer=_transducer(root, encoder.width) if kind.transducer else None,
    )
    if kind.ctc:
        _check_ctc(root.section("aux_ctc") if kind.transducer else root, encoder.width)
    return NemoModel(config, _tokenizer_file(root.section("tokenizer")) if kind.subwords else None, labels)


def _class_name(section: Section, key: str, supported: Any) -> str:  # noqa: ANN401  # names, in any container
    """Return the last part of the class path at ``key``."""
    name = section.text(key).rpartition(".")[2]
    if name not in supported:
        known = f"{name} ({_KNOWN_FAMILIES[name]})" if name in _KNOWN_FAMILIES else name
        raise UnsupportedValueError(section.key(key), known, ", ".join(supported))
    return name


def _features(section: Section, sample_rate: int) -> FeatureConfig:
    _class_name(section, "_target_", ("AudioToMelSpectrogramPreprocessor",))
    section.expect("sample_rate", sample_rate)
    section.expect("n_window_size", None)
    section.expect("n_window_stride", None)
    section.expect("window", "hann")
    section.expect("normalize", "per_feature")
    section.expect("log", True)
    section.expect("log_zero_guard_type", "add")
    section.expect("exact_pad", False)
    section.expect("frame_splicing", 1)
    section.expect("mag_power", 2.0, 2)
    section.expect("mel_norm", "slaney")
    section.expect("use_grads", False)
    # Noise and masking for training; padding, which nothing here depends on; and how an STFT is carried out.
    section.ignore("dither", "nb_augmentation_prob", "nb_max_freq", "rng", "pad_to", "pad_value", "pre_pad")
    section.ignore("use_torchaudio", "stft_conv", "stft_exact_pad")

    stride = section.number("window_stride", 0.01, low=0.001, high=0.1)
    window = int(section.number("window_size", 0.02, low=0.001, high=0.2) * sample_rate)
    power_of_two = 1 << (window - 1).bit_length()
    fft_size = power_of_two if section.get("n_fft") is None else section.integer("n_fft", low=window, high=2**15)
    if fft_size % 2:
        raise UnsupportedValueError(section.key("n_fft"), fft_size, "even numbers")
    nyquist = sample_rate / 2
    low = section.number("lowfreq", 0, low=0, high=nyquist - 1)
    no_high = section.get("highfreq") is None
    preemphasis = section.get("preemph", 0.97)
    config = FeatureConfig(
        sample_rate=sample_rate,
        window=window,
        hop=int(stride * sample_rate),
        window_stride=stride,
        fft_size=fft_size,
        mels=section.integer("features", 64, high=512),
        low_hz=low,
        high_hz=nyquist if no_high else section.number("highfreq", nyquist, low=low + 1, high=nyquist),
        preemphasis=None if preemphasis is None else section.number("preemph", 0.97, low=0, high=1),
        log_offset=section.number("log_zero_guard_value", 2**-24, low=1e-30, high=1),
    )
    section.refuse_the_rest()
    return config


def _encoder(section: Section, mels: int) -> ConformerConfig:
    _class_name(section, "_target_", ("ConformerEncoder",))
    width = section.integer("d_model", high=2**14)
    heads = section.integer("n_heads", 4, high=256)
    kernel = section.integer("conv_kernel_size", 31, high=1023)
    factor = section.integer("subsampling_factor", 4, low=2, high=64)
    channels = section.get("subsampling_conv_channels", -1)
    for name, wrong, supported in (
        ("d_model", width % 2 or width % heads, f"even multiples of n_heads, {heads}"),
        ("conv_kernel_size", kernel % 2 == 0, "odd numbers"),
        ("subsampling_factor", factor & (factor - 1), "powers of two"),
    ):
        if wrong:
            raise UnsupportedValueError(section.key(name), section.get(name), supported)
    section.expect("feat_in", mels)
    section.expect("feat_out", -1, 0, None, width)
    section.expect("subsampling", "striding", "dw_striding")
    section.expect("causal_downsampling", False)
    section.expect("reduction", None)
    section.expect("self_attention_model", "rel_pos")
    section.expect("att_context_size", None, [-1, -1])
    section.expect("att_context_style", "regular")
    section.expect("att_chunk_context_size", None)
    section.expect("global_tokens", 0)
    section.expect("conv_norm_type", "batch_norm")
    section.expect("conv_context_size", None, [kernel // 2, kernel // 2])
    section.expect("conv_context_style", None, "regular")
    # For training; what shares tensors that the file holds apart; and how the same numbers are computed.
    section.ignore("dropout", "dropout_pre_encoder", "dropout_emb", "dropout_att", "att_context_probs")
    section.ignore("stochastic_depth_drop_prob", "stochastic_depth_mode", "stochastic_depth_start_layer")
    section.ignore("untie_biases", "pos_emb_max_len", "reduction_position", "reduction_factor")
    section.ignore("global_tokens_spacing", "global_attn_separate", "subsampling_conv_chunking_factor")
    section.ignore("use_pytorch_sdpa", "use_pytorch_sdpa_backends", "sync_max_audio_length")
    config = ConformerConfig(
        mels=mels,
        layers=section.integer("n_layers", high=512),
        width=width,
        heads=heads,
        feed_forward_width=width * section.integer("ff_expansion_factor", 4, high=64),
        kernel_size=kernel,
        subsampling=cast("Subsampling", section.get("subsampling", "striding")),
        subsampling_factor=factor,
        subsampling_channels=width if channels == -1 else section.integer("subsampling_conv_channels", high=2**14),
        bias=section.flag("use_bias", default=True),
        scale_input=section.flag("xscaling", default=True),
    )
    section.refuse_the_rest()
    return config


def _labels(root: Section) -> tuple[str, ...]:
    """Return the labels of a model of characters, wherever its class keeps them."""
    decoder, joint = root.section("decoder"), root.section("joint")
    return decoder.strings("vocabulary") or joint.strings("vocabulary") or root.strings("labels")


def _vocabulary_size(root: Section, kind: _Kind, labels: tuple[str, ...]) -> int:
    """Return the number of labels, on which every place that tells it must agree."""
    decoder, joint, ctc = root.section("decoder"), root.section("joint"), root.section("aux_ctc").section("decoder")
    places = [(decoder, "vocab_size"), (joint, "num_classes")] if kind.transducer else [(decoder, "num_classes")]
    if kind.transducer and kind.ctc:
        places.append((ctc, "num_classes"))
    size = len(labels)
    for section, key in places:
        told = section.get(key)
        if told is None or (isinstance(told, int) and told <= 0):  # NeMo then counts the labels
            continue
        size = size or section.integer(key, high=_MAX_VOCABULARY)
        section.expect(key, size)
    if not 0 < size <= _MAX_VOCABULARY:
        section, key = places[0]
        raise UnsupportedValueError(section.key(key), section.get(key), f"1 to {_MAX_VOCABULARY} labels")
    return size


def _check_ctc(section: Section, width: int) -> None:
    decoder = section.section("decoder")
    _class_name(decoder, "_target_", ("ConvASRDecoder",))
    decoder.expect("feat_in", None, width)
    decoder.expect("add_blank", True)
    decoder.ignore("num_classes", "vocabulary", "init_mode")
    decoder.refuse_the_rest_unless_off()
    ctc_decoding(section.section("decoding"))


def _transducer(root: Section, encoder_width: int) -> TransducerConfig:
    defaults = root.section("model_defaults")
    width, layers = _predictor(root.section("decoder"), defaults)
    section = root.section("joint")
    joint_width, activation = _joint(section, defaults, encoder_width, width)
    decoding = transducer_decoding(root.section("decoding"))
    return TransducerConfig(
        predictor_width=width,
        predictor_layers=layers,
        joint_width=joint_width,
        activation=activation,
        durations=_durations(section, defaults, decoding.durations),
        max_symbols=decoding.max_symbols,
    )


def _predictor(section: Section, defaults: Section) -> tuple[int, int]:
    """Return the width and the number of LSTM layers of the predictor."""
    _class_name(section, "_target_", ("RNNTDecoder",))
    section.expect("normalization_mode", None)
    section.expect("blank_as_pad", True)
    section.ignore("prednet", "vocab_size", "vocabulary", "random_state_sampling")
    section.refuse_the_rest_unless_off()
    network = section.section("prednet")
    width = network.integer("pred_hidden", defaults.get("pred_hidden"), high=2**14)
    network.expect("rnn_hidden_size", None, -1, width)
    network.ignore("dropout", "t_max", "forget_gate_bias", "weights_init_scale", "hidden_hidden_bias_scale")
    layers = network.integer("pred_rnn_layers", 1, high=16)
    network.refuse_the_rest_unless_off()
    return width, layers


def _joint(section: Section, defaults: Section, encoder_width: int, predictor_width: int) -> tuple[int, Activation]:
    """Return the width and the activation of the joint."""
    _class_name(section, "_target_", ("RNNTJoint",))
    section.ignore("jointnet", "num_classes", "vocabulary", "num_extra_outputs", "log_softmax", "preserve_memory")
    section.ignore("fuse_loss_wer", "fused_batch_size", "experimental_fuse_loss_wer", "masking_prob")
    section.refuse_the_rest_unless_off()
    network = section.section("jointnet")
    network.expect("encoder_hidden", None, encoder_width)
    network.expect("pred_hidden", None, predictor_width)
    network.expect("activation", "relu", "tanh", "sigmoid")
    network.ignore("dropout")
    width = network.integer("joint_hidden", defaults.get("joint_hidden"), high=2**14)
    activation = cast("Activation", network.get("activation", "relu"))
    network.refuse_the_rest_unless_off()
    return width, activation


def _durations(joint: Section, defaults: Section, decoding: tuple[int, ...]) -> tuple[int, ...]:
    """Return the durations of a TDT, one for each output of the joint beyond labels and blank."""
    extra = joint.integer("num_extra_outputs", 0, low=0, high=MAX_DURATION)
    durations = decoding or (defaults.integers("tdt_durations", low=0, high=MAX_DURATION) if extra else ())
    if len(durations) != extra:
        needed = f"as many as joint.num_extra_outputs, {extra}"
        raise UnsupportedValueError("decoding.durations", list(durations), needed)
    return durations


def _tokenizer_file(section: Section) -> str:
    section.expect("type", "bpe")
    section.expect("custom_tokenizer", None)
    return section.text("model_path").removeprefix("nemo:").rpartition("/")[2]
