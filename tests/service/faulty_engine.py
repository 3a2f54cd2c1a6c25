"""The real engine process with faults, each caused by an utterance of a certain length, as in the stub engine.

NAN_SAMPLES      the encoder's output for this utterance is no number
FAIL_SAMPLES     the batch raises an ordinary error
POISON_SAMPLES   the device fails, and every later call to it too, as a poisoned CUDA context does
SPIN_SAMPLES     the thread of the device computes for ever
HOLD_SAMPLES     it does so without ever letting another thread of Python run
ROOM_SAMPLES     what a batch may have before it does not fit the device
"""

import re

import torch

from service.engine import loop
from service.engine.process import SpeechRecognizer

NAN_SAMPLES, FAIL_SAMPLES, POISON_SAMPLES, SPIN_SAMPLES, HOLD_SAMPLES = range(16_001, 16_006)
ROOM_SAMPLES = 100_000


class FaultyRecognizer(SpeechRecognizer):
    """Fails at the lengths above; warm-up has none of them."""

    def __init__(self, load, on_download):
        super().__init__(load, on_download)
        self._is_warm = self._is_poisoned = False
        self._nan_rows = []
        self._model.network.encoder.register_forward_hook(self._spoil)

    def warm_up(self):
        yield from super().warm_up()
        self._is_warm = True

    def recognize(self, collated, prompts, decoder):
        if self._is_warm:
            self._obey(collated.batch[1].tolist())
        return super().recognize(collated, prompts, decoder)

    def kind_of(self, error):
        if self._is_poisoned:  # as if it were a GPU: the device is asked whether it survived
            usual, self._device = self._device, torch.device("cuda")
            torch.cuda.synchronize = self._fail
            try:
                return super().kind_of(error)
            finally:
                self._device = usual
        return super().kind_of(error)

    def _obey(self, lengths):
        self._nan_rows = [row for row, samples in enumerate(lengths) if samples == NAN_SAMPLES]
        self._is_poisoned = self._is_poisoned or POISON_SAMPLES in lengths
        if self._is_poisoned:
            self._fail()
        if FAIL_SAMPLES in lengths:
            raise ArithmeticError("an utterance that fails its batch")
        if len(lengths) > 1 and sum(lengths) > ROOM_SAMPLES:
            raise torch.OutOfMemoryError("CUDA out of memory")
        while SPIN_SAMPLES in lengths:
            pass
        if HOLD_SAMPLES in lengths:
            re.fullmatch("(a*)*b", "a" * 64)

    def _fail(self, *_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _spoil(self, _module, _inputs, output):
        for row in self._nan_rows:
            output[0][row] = float("nan")
        return output


if __name__ == "__main__":
    loop.main(FaultyRecognizer, torch.cuda.is_available)
