"""Translating the heads of a NeMo configuration: CTC, and the predictor and joint of a transducer."""

from models.checkpoint.nemo.decoding import MAX_DURATION, ctc_decoding, transducer_decoding
from models.checkpoint.section import Section
from models.config import TransducerConfig
from models.errors import UnsupportedValueError

_STATELESS = "StatelessTransducerDecoder"
_MAX_CONTEXT = 16


def check_ctc(section: Section, width: int) -> None:
    """Check ``decoder`` and ``decoding`` of a CTC head. They add nothing to the rest of the configuration."""
    decoder = section.section("decoder")
    decoder.class_name("_target_", ("ConvASRDecoder",))
    decoder.expect("feat_in", None, width)
    decoder.expect("add_blank", True)
    decoder.ignore("num_classes", "vocabulary", "init_mode")
    decoder.refuse_the_rest(unless_off=True)
    ctc_decoding(section.section("decoding"))


def parse_transducer(root: Section, encoder_width: int) -> TransducerConfig:
    """Translate the sections of a transducer over an encoder of ``encoder_width``."""
    defaults = root.section("model_defaults")
    width, layers, context, is_normalized = _predictor(root.section("decoder"), defaults)
    joint_width = _joint_width(root.section("joint"), defaults, encoder_width, width)
    durations, max_symbols = transducer_decoding(root.section("decoding"))
    return TransducerConfig(
        predictor_width=width,
        predictor_layers=layers,
        joint_width=joint_width,
        durations=_durations(root, durations),
        max_symbols=max_symbols,
        predictor_context=context,
        is_predictor_normalized=is_normalized,
    )


def _predictor(section: Section, defaults: Section) -> tuple[int, int, int | None, bool]:
    """Return width and layers of a predictor, the context of a stateless one, and whether that is normalized."""
    is_stateless = section.class_name("_target_", ("RNNTDecoder", _STATELESS)) == _STATELESS
    section.expect("normalization_mode", None, *(("layer",) if is_stateless else ()))
    section.expect("blank_as_pad", True)
    section.ignore("prednet", "vocab_size", "vocabulary", "random_state_sampling")
    network = section.section("prednet")
    width, layers, context = network.integer("pred_hidden", defaults.get("pred_hidden"), high=2**14), 0, None
    network.ignore("dropout", "t_max", "forget_gate_bias", "weights_init_scale", "hidden_hidden_bias_scale")
    if is_stateless:
        network.ignore("pred_rnn_layers", "rnn_hidden_size")
        context = section.integer("context_size", 1, high=_MAX_CONTEXT)
        network.require("pred_hidden", width >= 2 * context, f"at least two for each of the {context} labels it reads")
    else:
        network.expect("rnn_hidden_size", None, -1, width)
        layers = network.integer("pred_rnn_layers", 1, high=16)
    section.refuse_the_rest(unless_off=True)
    network.refuse_the_rest(unless_off=True)
    return width, layers, context, section.get("normalization_mode") == "layer"


def _joint_width(section: Section, defaults: Section, encoder_width: int, predictor_width: int) -> int:
    section.class_name("_target_", ("RNNTJoint",))
    section.ignore("jointnet", "num_classes", "vocabulary", "num_extra_outputs", "log_softmax", "preserve_memory")
    section.ignore("fuse_loss_wer", "fused_batch_size", "experimental_fuse_loss_wer", "masking_prob")
    section.refuse_the_rest(unless_off=True)
    network = section.section("jointnet")
    network.expect("encoder_hidden", None, encoder_width)
    network.expect("pred_hidden", None, predictor_width)
    network.expect("activation", "relu")
    network.ignore("dropout")
    width = network.integer("joint_hidden", defaults.get("joint_hidden"), high=2**14)
    network.refuse_the_rest(unless_off=True)
    return width


def _durations(root: Section, durations: tuple[int, ...]) -> tuple[int, ...]:
    """Return the durations of a TDT, one for each output of the joint beyond labels and blank; empty for an RNN-T.

    Args:
        root: the root of the configuration.
        durations: those of ``decoding``; if it has none, ``model_defaults`` has them.
    """
    joint, key = root.section("joint"), root.section("decoding").key("durations")
    extra = joint.integer("num_extra_outputs", 0, low=0, high=MAX_DURATION + 1)  # 0 is a duration, too
    defaults = root.section("model_defaults")
    if extra and not durations and defaults.get("tdt_durations"):
        key, durations = defaults.key("tdt_durations"), defaults.integers("tdt_durations", low=0, high=MAX_DURATION)
    if len(durations) != extra:
        raise UnsupportedValueError(key, list(durations), f"as many as {joint.key('num_extra_outputs')}, {extra}")
    return durations
