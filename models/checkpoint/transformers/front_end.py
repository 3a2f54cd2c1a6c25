"""Translating the feature extractor of a transformers folder."""

from models.checkpoint.section import Section
from models.config import FeatureConfig

# A constant in ParakeetFeatureExtractor, and the default in NeMo.
_LOG_OFFSET = 2**-24
# The classes, and the bands by default. That for streams does not normalize.
PLAIN, FOR_STREAMS, COHERE = (f"{name}FeatureExtractor" for name in ("Parakeet", "NemotronAsrStreaming", "CohereAsr"))
_BANDS = {PLAIN: 80, FOR_STREAMS: 80, COHERE: 128}
# What Cohere's does besides: it adds noise of a fixed seed, which is left out (docs/checkpoints.md), and cuts long
# recordings. ``auto_map`` names code that came before transformers' class.
_OF_COHERE = ("dither", "max_audio_clip_s", "overlap_chunk_second", "min_energy_window_samples", "auto_map")


def parse_front_end(section: Section, mels: int, kind: str = PLAIN) -> FeatureConfig:
    """Translate the section of a feature extractor; absent keys have transformers' defaults.

    Args:
        section: the feature extractor's section.
        mels: bands that the encoder takes.
        kind: the class that the model needs.
    """
    section.expect("feature_extractor_type", kind)
    section.expect("mel_filters_dtype", "float32")
    bands = section.integer("feature_size", _BANDS[kind], high=512)
    section.require("feature_size", bands == mels, f"as encoder_config.num_mel_bins, {mels}")
    if kind == COHERE:
        section.ignore(*_OF_COHERE, "feature_extractor_class")
        section.expect("normalize", None, "per_feature")
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
        normalized=kind != FOR_STREAMS,
    )
    section.refuse_the_rest(unless_off=True)
    return config
