"""How likely each 32 ms of audio hold speech, by Silero's network, block by block.

The network comes out of the silero-vad package as a file. The package itself is never imported: that would load
PyTorch, and the service's front has none.
"""

from importlib.metadata import files

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from audio.resample import Samples

RATE = 16_000
FRAME_SAMPLES = 512
FRAME_SECONDS = FRAME_SAMPLES / RATE

_PACKAGE = "silero-vad"
# It takes any number of frames in one call, in which the interpreter lock is free.
_NETWORK = "silero_vad_16k_sequence.onnx"
_CONTEXT_SAMPLES = 64  # that the network sees of the frame before
_STATE = (1, 1, 128)


class SpeechDetector:
    """The network; loaded once, and used by any number of streams and threads at a time."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        # A recurrent network of this size gains nothing by a second thread, and its own would spin.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(_network_path(), options, providers=["CPUExecutionProvider"])

    def stream(self) -> "SpeechStream":
        """Begin a recording."""
        return SpeechStream(self.session)


class SpeechStream:
    """One recording on its way through the network.

    How the audio is divided into blocks does not matter: the network's state goes on from one to the next.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._hidden = np.zeros(_STATE, np.float32)
        self._cell = np.zeros(_STATE, np.float32)
        self._context: Samples = np.zeros(_CONTEXT_SAMPLES, np.float32)
        self._rest: Samples = np.empty(0, np.float32)

    def push(self, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Take the next samples, mono at 16 kHz, and judge the frames that are complete.

        Returns:
            The probability of speech in each frame, and its energy (mean square), both [frames].
        """
        samples = np.concatenate((self._rest, samples))
        whole = len(samples) // FRAME_SAMPLES * FRAME_SAMPLES
        self._rest = samples[whole:]
        return self._judge(samples[:whole].reshape(-1, FRAME_SAMPLES))

    def finish(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Judge what is left at the end of the recording, no frame or one, filled up with silence."""
        missing = -len(self._rest) % FRAME_SAMPLES
        return self.push(np.zeros(missing, np.float32))

    def _judge(self, frames: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not len(frames):
            return np.empty(0, np.float32), np.empty(0, np.float32)
        contexts = np.vstack((self._context, frames[:-1, -_CONTEXT_SAMPLES:]))
        self._context = frames[-1, -_CONTEXT_SAMPLES:]
        probabilities, self._hidden, self._cell = self._session.run(
            ("speech_probs", "hn", "cn"),
            {"input": np.hstack((contexts, frames)), "h": self._hidden, "c": self._cell},
        )
        energies: NDArray[np.float32] = np.square(frames).mean(axis=1)
        return probabilities, energies


def _network_path() -> str:
    for file in files(_PACKAGE) or ():
        if file.name == _NETWORK:
            return str(file.locate())
    raise FileNotFoundError(f"{_NETWORK} is not in the installed package {_PACKAGE}")
