"""Loading and running a model that identifies the spoken language."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import IdentifierCheckpoint, read_identifier
from models.checkpoint.location import checkpoint_path
from models.device.host_copy import HostCopy
from models.device.precision import checked_precision
from models.device_model import DeviceModel, Waveform, batches
from models.download import OnDownload
from models.features import LogMelFeatures
from models.graphs.passes import MOST_SECONDS, GraphedPasses
from models.network import IdentifierNetwork
from transcripts.identified_samples import identified_samples
from transcripts.spoken_language import Probabilities, language_of_label


def load_identifier(
    path: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    on_download: OnDownload | None = None,
) -> "LanguageIdentifier":
    """Load a language identifier, such as NVIDIA's AmberNet.

    Args:
        path: a ``.nemo`` file, a folder with one, or a name on the hub, which is downloaded first.
        device: the device that it computes on.
        dtype: dtype of its encoder, float32 or bfloat16. Features, pooling and probabilities are float32.
        on_download: gets the progress; None draws a progress bar if standard error is a terminal.

    Raises:
        CheckpointError: if the checkpoint cannot be loaded, or is no language identifier; one line says why.
    """
    return LanguageIdentifier(read_identifier(checkpoint_path(path, on_download)), torch.device(device), dtype)


class LanguageIdentifier(DeviceModel):
    """A model that identifies the spoken language; takes over the tensors of a checkpoint.

    Attributes:
        dtype: dtype of its encoder.
        network: its encoder and head.
        weight_bytes: memory of its weights on the device.
        languages: the languages that it knows: ISO 639-1 codes where there is one, else its own labels; sorted.
    """

    def __init__(self, checkpoint: IdentifierCheckpoint, device: torch.device, dtype: torch.dtype) -> None:
        self._config = config = checkpoint.config
        self._front_end = LogMelFeatures(config.features, checkpoint.window, checkpoint.mel_bank).to(device)
        self.network = IdentifierNetwork.without_weights(config)
        self.network.load_state_dict(checkpoint.state, assign=True)
        self._parameters = sum(parameter.numel() for parameter in self.network.parameters())
        self.network.fold()
        self.network.encoder.to(device, dtype)
        self.network.head.to(device, torch.float32)
        self.network.eval().requires_grad_(requires_grad=False)
        self.device = device
        self.dtype = dtype
        self.precision = checked_precision(dtype, device)
        self.sample_rate = config.features.sample_rate
        tensors = (*self.network.parameters(), *self.network.buffers())
        self.weight_bytes = sum(tensor.nbytes for tensor in tensors)
        self._label_languages = [language_of_label(label) for label in config.labels]
        self.languages = tuple(sorted(set(self._label_languages)))
        self.passes = GraphedPasses([self._probabilities], device, int(MOST_SECONDS * self.sample_rate))
        self._sizes = {"identifier": self.passes.sizes}

    def identify(
        self, pcm: Sequence[Waveform], batch_seconds: float = 240.0, rate: int | None = None
    ) -> list[Probabilities]:
        """Return the probability of each language in each utterance, of its first 30 s.

        Args:
            pcm: mono float32 arrays, within -1 to 1; any number and lengths.
            batch_seconds: most seconds of audio and padding in a batch, unless it is one utterance.
            rate: samples per second of ``pcm``; None is ``sample_rate``, others are resampled.
        """
        begun = [identified_samples(samples, rate or self.sample_rate, self.sample_rate) for samples in pcm]
        found: dict[int, Probabilities] = {}
        for batch in batches([len(samples) for samples in begun], batch_seconds * self.sample_rate):
            launched = self.launch(*self.batch([begun[index] for index in batch]))
            found.update(zip(batch, launched.probabilities(), strict=True))
        return [found[index] for index in range(len(pcm))]

    @torch.no_grad()
    def launch(self, waveforms: Tensor, lengths: Tensor) -> "PendingProbabilities":
        """Begin to identify the languages of a batch. On a GPU this does not wait for the device.

        Args:
            waveforms: [batch, samples], float32, on the host; padding may hold anything.
            lengths: samples of each row, [batch], int64, on the host.
        """
        with self._as_current_device():
            (probabilities,) = self.passes(self._probabilities, waveforms, lengths)
            return PendingProbabilities(HostCopy(probabilities), self._label_languages)

    def info(self) -> dict[str, Any]:
        """Describe the model, for JSON."""
        config = self._config
        return {
            "family": "language identifier",
            "class": config.name,
            "parameters": self._parameters,
            "layers": config.encoder.layers,
            "width": config.encoder.width,
            "pooling": config.pooling,
            "mels": config.features.mels,
            "sample_rate": self.sample_rate,
            "window_stride": config.features.window_stride,
            "subsampling_factor": config.encoder.subsampling_factor,
            "languages": list(self.languages),
        }

    def _probabilities(self, waveforms: Tensor, lengths: Tensor, known: Tensor | None) -> tuple[Tensor]:  # noqa: ARG002
        """Return the probabilities of the labels, [batch, labels]."""
        features, frames = self._front_end(waveforms, lengths)
        return (self.network(features.to(self.dtype), frames).softmax(dim=-1),)


class PendingProbabilities:
    """The probabilities of a batch, computed or being computed. Any thread may use it."""

    def __init__(self, probabilities: HostCopy, languages: Sequence[str]) -> None:
        """Take the probabilities of labels, [batch, labels], and the language of each label."""
        self._probabilities = probabilities
        self._languages = languages

    def wait(self) -> None:
        """Wait until the device is done with the batch; raise RuntimeError if the device failed."""
        self._probabilities.wait()

    def probabilities(self) -> list[Probabilities]:
        """Wait, and return the probability of each language in each utterance.

        Labels of one language, such as those of its regions, are added up.
        """
        rows: list[Probabilities] = []
        for labelled in self._probabilities.tensor().tolist():
            row: Probabilities = {}
            for language, probability in zip(self._languages, labelled, strict=True):
                row[language] = row.get(language, 0.0) + probability
            rows.append(row)
        return rows
