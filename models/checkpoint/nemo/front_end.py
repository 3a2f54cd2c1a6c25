"""Translating the preprocessor of a NeMo configuration."""

from models.checkpoint.section import Section
from models.config import FeatureConfig


def parse_front_end(section: Section, sample_rate: int) -> FeatureConfig:
    """Translate the ``preprocessor`` section of a model for audio of ``sample_rate``."""
    section.class_name("_target_", ("AudioToMelSpectrogramPreprocessor",))
    _expect_what_we_do(section, sample_rate)
    stride = section.number("window_stride", 0.01, low=0.001, high=0.1)
    window = int(section.number("window_size", 0.02, low=0.001, high=0.2) * sample_rate)
    nyquist = sample_rate / 2
    low = section.number("lowfreq", 0, low=0, high=nyquist - 1)
    config = FeatureConfig(
        sample_rate=sample_rate,
        window=window,
        hop=int(stride * sample_rate),
        window_stride=stride,
        fft_size=_fft_size(section, window),
        mels=section.integer("features", 64, high=512),
        low_hz=low,
        high_hz=section.optional_number("highfreq", None, low=low + 1, high=nyquist) or nyquist,
        preemphasis=section.optional_number("preemph", 0.97, low=0, high=1),
        log_offset=section.number("log_zero_guard_value", 2**-24, low=1e-30, high=1),
        normalized=section.get("normalize", "per_feature") == "per_feature",
    )
    section.refuse_the_rest()
    return config


def _expect_what_we_do(section: Section, sample_rate: int) -> None:
    section.expect("sample_rate", sample_rate)
    section.expect("n_window_size", None)
    section.expect("n_window_stride", None)
    section.expect("window", "hann")
    section.expect("normalize", "per_feature", "NA", None)
    section.expect("log", True)
    section.expect("log_zero_guard_type", "add")
    section.expect("exact_pad", False)
    section.expect("frame_splicing", 1)
    section.expect("mag_power", 2.0, 2)
    section.expect("mel_norm", "slaney")
    section.expect("use_grads", False)
    # Noise and masking for training; padding, which changes nothing here; and implementations of the STFT.
    section.ignore("dither", "nb_augmentation_prob", "nb_max_freq", "rng", "pad_to", "pad_value", "pre_pad")
    section.ignore("use_torchaudio", "stft_conv", "stft_exact_pad")


def _fft_size(section: Section, window: int) -> int:
    """Return the size of the Fourier transform: by default the first power of two that holds the window."""
    if section.get("n_fft") is None:
        return 1 << (window - 1).bit_length()
    size = section.integer("n_fft", low=window, high=2**15)
    section.require("n_fft", size % 2 == 0, "even numbers")
    return size
