"""The probability of speech in each 32 ms of audio, by Silero's network, block by block."""

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from audio.samples import Samples

RATE = 16_000
FRAME_SAMPLES = 512
FRAME_SECONDS = FRAME_SAMPLES / RATE

# It takes any number of frames in one call, and the call releases the interpreter lock.
_NETWORK = Path(__file__).with_name("silero") / "network.onnx"
_MOST_FRAMES = 128  # of a call, because the intermediate results of more do not fit a core's cache
_CONTEXT_SAMPLES = 64  # of the frame before, which the network gets too
_STATE = (1, 1, 128)


class SpeechDetector:
    """The network, loaded once for any number of streams and threads at the same time."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        # A recurrent network of this size gains nothing from a second thread, and ONNX Runtime's threads would spin.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(_NETWORK), options, providers=["CPUExecutionProvider"])

    def stream(self) -> "SpeechStream":
        """Return a stream for a new recording."""
        return SpeechStream(self.session)


class SpeechStream:
    """One recording on its way through the network.

    The division into blocks does not matter, because the network's state is carried from one to the next.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._hidden = np.zeros(_STATE, np.float32)
        self._cell = np.zeros(_STATE, np.float32)
        self._context: Samples = np.zeros(_CONTEXT_SAMPLES, np.float32)
        self._rest: Samples = np.empty(0, np.float32)

    def push(self, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Take the next samples, mono at 16 kHz, and run the network on the frames that are complete.

        Returns:
            The probability of speech in each frame [frames], and these frames [frames, 512 samples].
        """
        samples = np.concatenate((self._rest, samples))
        whole = len(samples) // FRAME_SAMPLES * FRAME_SAMPLES
        self._rest = samples[whole:]
        return self._score(samples[:whole].reshape(-1, FRAME_SAMPLES))

    def finish(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Run the network on the rest of the recording: no frame, or one filled up with silence."""
        missing = -len(self._rest) % FRAME_SAMPLES
        return self.push(np.zeros(missing, np.float32))

    def _score(self, frames: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not len(frames):
            return np.empty(0, np.float32), frames
        contexts = np.vstack((self._context, frames[:-1, -_CONTEXT_SAMPLES:]))
        self._context = frames[-1, -_CONTEXT_SAMPLES:]
        inputs = np.hstack((contexts, frames))
        probabilities = [self._run(inputs[at : at + _MOST_FRAMES]) for at in range(0, len(inputs), _MOST_FRAMES)]
        return np.concatenate(probabilities), frames

    def _run(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        probabilities: NDArray[np.float32]
        probabilities, self._hidden, self._cell = self._session.run(
            ("speech_probs", "hn", "cn"), {"input": inputs, "h": self._hidden, "c": self._cell}
        )
        return probabilities
