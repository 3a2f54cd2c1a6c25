"""Log-mel features as NeMo computes them since release 2.5; padding changes no real frame."""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.config import FeatureConfig
from models.device.precision import exact_products
from models.encoders.masking import unpadded, valid_positions

# Added to the deviation, so that a constant band gives zeros and not NaN.
_DEVIATION_OFFSET = 1e-5

# The mel scale of Slaney's Auditory Toolbox (1998): linear up to 1 kHz, logarithmic above.
_HZ_PER_MEL = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _HZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27

# Frames that a GPU transforms at once: enough to fill it, and few enough for its cache (17 MB of 512 values each).
FRAMES_OF_BLOCK = 8192


class LogMelFeatures(nn.Module):
    """Turns waveforms into mel bands of log power, each normalised over its own clip unless the model goes without.

    Always float32, also under autocast and with tf32: rounding here costs accuracy.
    """

    def __init__(self, config: FeatureConfig, window: Tensor | None = None, mel_bank: Tensor | None = None) -> None:
        """Build the front end.

        Args:
            config: its configuration.
            window: analysis window [window]; None computes the symmetric Hann window.
            mel_bank: weights of the mel bands [mels, fft_size / 2 + 1]; None computes Slaney's.
        """
        super().__init__()
        self.config = config
        window = torch.hann_window(config.window, periodic=False) if window is None else window
        mel_bank = torch.from_numpy(slaney_mel_bank(config)) if mel_bank is None else mel_bank
        self.window: Tensor
        self.mel_bank: Tensor
        self.register_buffer("window", window.float(), persistent=False)
        self.register_buffer("mel_bank", mel_bank.float(), persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the features of a batch; a CPU processes clip by clip, so that a clip stays in the caches.

        Args:
            waveforms: [batch, samples], float32, within -1 to 1; padding may hold anything.
            lengths: samples of each row, [batch], int64.

        Returns:
            Features [batch, mels, frames], float32, zero in the padding, and the frames of each row: one for each whole
            hop.
        """
        columns = max(1, waveforms.size(1) // self.config.hop)
        with torch.autocast(waveforms.device.type, enabled=False), exact_products():
            if waveforms.device.type != "cpu" or waveforms.size(0) == 0:
                features = self._normalized(waveforms, lengths, columns)
            else:
                features = torch.cat([self._alone(clip, columns) for clip in unpadded(waveforms, lengths)])
        return features, self.frames(lengths)

    def frames(self, lengths: Tensor) -> Tensor:
        """Return the number of frames of clips whose samples are ``lengths``, [batch]."""
        return lengths // self.config.hop

    def _alone(self, clip: Tensor, columns: int) -> Tensor:
        """Return the features of one clip [samples], as [1, mels, columns]."""
        frames = clip.size(0) // self.config.hop
        features = self._normalized(clip[None], torch.tensor([clip.size(0)]), max(1, frames))
        return pad(features, (0, columns - features.size(2)))

    def _normalized(self, waveforms: Tensor, lengths: Tensor, columns: int) -> Tensor:
        """Return the features of a batch, [batch, mels, columns], zero in the padding."""
        log_mel = self._log_mel(self._emphasize(waveforms.float(), lengths), columns)
        if self.config.normalized:
            return _normalize(log_mel, self.frames(lengths))
        return log_mel.masked_fill(~valid_positions(self.frames(lengths), columns)[:, None], 0.0)

    def _emphasize(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        """Zero the padding, and subtract from each sample ``preemphasis`` times the one before."""
        valid = valid_positions(lengths, waveforms.size(1))
        waveforms = waveforms.masked_fill(~valid, 0.0)
        if self.config.preemphasis is None:
            return waveforms
        emphasized = waveforms - self.config.preemphasis * pad(waveforms, (1, 0))[:, :-1]
        return emphasized.masked_fill(~valid, 0.0)

    def _log_mel(self, waveforms: Tensor, columns: int) -> Tensor:
        half = self.config.fft_size // 2
        padded = pad(waveforms, (half, half))
        mel_power = mel_power_by_blocks if padded.device.type == "cuda" else mel_power_at_once
        mels = mel_power(padded, self.window, self.mel_bank, self.config)
        return torch.log(mels[:, :, :columns] + self.config.log_offset)


def mel_power_at_once(waveforms: Tensor, window: Tensor, mel_bank: Tensor, config: FeatureConfig) -> Tensor:
    """Return the power of each mel band in each frame, [batch, mels, frames].

    Args:
        waveforms: [batch, samples], at least ``fft_size`` samples.
        window: [window], applied to the middle of each ``fft_size`` samples.
        mel_bank: weights of the bands, [mels, fft_size / 2 + 1].
        config: the configuration of the front end.
    """
    spectrum = torch.stft(
        waveforms, config.fft_size, config.hop, config.window, window, center=False, return_complex=True
    )
    return mel_bank @ _power(spectrum)


def mel_power_by_blocks(waveforms: Tensor, window: Tensor, mel_bank: Tensor, config: FeatureConfig) -> Tensor:
    """Return what ``mel_power_at_once`` returns, and a few more frames, from transforms of a fixed number of frames.

    A GPU's library makes a plan for each number of frames, which takes time and memory; it keeps a bounded number of
    plans, and may drop one that a CUDA graph still uses. The spectra of a block stay in the GPU's cache.
    """
    (batch, samples), hop, size = waveforms.shape, config.hop, config.fft_size
    hops = math.ceil(samples / hop)
    frames = max(1, math.ceil(batch * hops / FRAMES_OF_BLOCK)) * FRAMES_OF_BLOCK
    # All rows as one signal. Frames that begin at the end of a row reach into the next one; they are not needed.
    signal = pad(waveforms, (0, hops * hop - samples)).flatten()
    signal = pad(signal, (0, (frames - 1) * hop + size - len(signal)))
    margin = (size - config.window) // 2
    window = pad(window, (margin, size - config.window - margin))
    blocks = torch.split(signal.unfold(0, size, hop), FRAMES_OF_BLOCK)
    mels = torch.cat([_power(torch.fft.rfft(block * window)) @ mel_bank.T for block in blocks])
    return mels[: batch * hops].view(batch, hops, len(mel_bank)).mT


def _power(spectrum: Tensor) -> Tensor:
    return spectrum.real.square() + spectrum.imag.square()


def _normalize(log_mel: Tensor, frames: Tensor) -> Tensor:
    """Normalise each band of each clip to mean 0 and deviation 1 over the clip's frames, and zero the padding."""
    padding = ~valid_positions(frames, log_mel.size(2))[:, None]
    count = frames[:, None, None]
    mean = log_mel.masked_fill(padding, 0.0).sum(dim=2, keepdim=True) / count.clamp(min=1)
    centered = (log_mel - mean).masked_fill(padding, 0.0)
    variance = centered.square().sum(dim=2, keepdim=True) / (count - 1).clamp(min=1)
    return centered / (variance.sqrt() + _DEVIATION_OFFSET)


def slaney_mel_bank(config: FeatureConfig) -> npt.NDArray[np.float32]:
    """Return triangular mel bands of unit area [mels, fft_size / 2 + 1] (Slaney, Auditory Toolbox, 1998)."""
    low, high = mels_of_hz(np.array([config.low_hz, config.high_hz]))
    edges = hz_of_mels(np.linspace(low, high, config.mels + 2))
    bins = np.linspace(0.0, config.sample_rate / 2, config.fft_size // 2 + 1)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    bank: npt.NDArray[np.float32] = (triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)
    return bank


def mels_of_hz(hz: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Convert frequencies in Hz to mels."""
    # The maximum avoids the logarithm of 0 in the linear part.
    logarithmic = _BREAK_MEL + np.log(np.maximum(hz, _BREAK_HZ) / _BREAK_HZ) / _LOG_STEP
    return np.where(hz < _BREAK_HZ, hz / _HZ_PER_MEL, logarithmic)


def hz_of_mels(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Convert mels to frequencies in Hz."""
    return np.where(mels < _BREAK_MEL, mels * _HZ_PER_MEL, _BREAK_HZ * np.exp(_LOG_STEP * (mels - _BREAK_MEL)))
