"""Translating the feature extractor of a transformers folder."""

from models.checkpoint.section import Section
from models.config import FeatureConfig

# A constant in ParakeetFeatureExtractor, and the default in NeMo.
_LOG_OFFSET = 2**-24
_PLAIN, _FOR_STREAMS = "ParakeetFeatureExtractor", "NemotronAsrStreamingFeatureExtractor"


def parse_front_end(section: Section, mels: int, *, normalized: bool = True) -> FeatureConfig:
    """Translate the section of a ParakeetFeatureExtractor, or of that for streams, which does not normalize features.

    Args:
        section: the feature extractor's section.
        mels: bands that the encoder takes.
        normalized: whether the model was trained with normalized features.

    Raises:
        UnsupportedValueError: naming the first key that asks for something else than we do.
    """
    section.expect("feature_extractor_type", _PLAIN if normalized else _FOR_STREAMS)
    section.expect("mel_filters_dtype", "float32")
    section.integer("feature_size", 80, high=512)
    section.require("feature_size", section.get("feature_size", 80) == mels, f"as encoder_config.num_mel_bins, {mels}")
    section.expect("padding_side", "right")
    section.expect("padding_value", 0, 0.0)
    section.ignore("processor_class", "return_attention_mask")
    rate = section.integer("sampling_rate", 16_000, low=1000, high=384_000)
    window = section.integer("win_length", 400, high=2**15)
    hop = section.integer("hop_length", 160, high=2**15)
    fft_size = section.integer("n_fft", 512, low=window, high=2**15)
    section.require("n_fft", fft_size % 2 == 0, "even numbers")
    config = FeatureConfig(
        sample_rate=rate,
        window=window,
        hop=hop,
        window_stride=hop / rate,
        fft_size=fft_size,
        mels=mels,
        low_hz=0.0,
        high_hz=rate / 2,
        preemphasis=section.optional_number("preemphasis", 0.97, low=0, high=1),
        log_offset=_LOG_OFFSET,
        normalized=normalized,
    )
    section.refuse_the_rest_unless_off()
    return config
