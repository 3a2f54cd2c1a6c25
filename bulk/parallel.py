"""Transcribe utterances on several threads of a CPU, each with its share of the utterances and of the processors."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Self

from bulk.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audio.samples import Samples
    from models import Transcriber, Transcript
    from transcripts.prompt import Prompt

# A small model gains from two threads on two processors (docs/performance.md at 4f03a9e); more than four were not
# measured.
_MOST_THREADS = 4
_MOST_IMBALANCE = 1.1


class ParallelTranscriber:
    """Transcribes with one model. On a CPU several threads do: in one matrix product, processors wait for each other.

    What is computed at the same time has ``batch_seconds`` of audio and padding in all, and half of it after a batch
    that did not fit the memory. On a GPU there is one thread, the caller's. Use it in a ``with`` statement, which ends
    the threads: at once after an error or Ctrl-C.
    """

    def __init__(self, model: Transcriber, decoder: str | None, prompt: Prompt, batch_seconds: float) -> None:
        import torch  # which a process without a model does not load

        self._model = model
        self._options: dict[str, Any] = {"decoder": decoder, **prompt._asdict()}
        self._batch_seconds = batch_seconds
        self._processors = torch.get_num_threads()
        self._most = min(self._processors, _MOST_THREADS) if model.device.type == "cpu" else 1
        self._threads = ThreadPoolExecutor(self._most)
        self._at_work: set[int] = set()  # identifiers of threads
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error:
            with self._lock:
                for thread in self._at_work:
                    # A batch may take a minute, and cannot be cancelled; this ends it at the next line of Python.
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
        self._threads.shutdown(cancel_futures=True)

    def __call__(self, pcm: Sequence[Samples], languages: Sequence[str | None]) -> list[Transcript]:
        """Return the transcript of each utterance, mono float32 [samples] at the model's rate, in its language.

        Raises:
            JobError: if the model does not work in the dtype that was chosen for it.
        """
        shares = balanced([len(samples) for samples in pcm], self._most)
        count = len(shares)
        waveforms = [[pcm[index] for index in share] for share in shares]
        spoken = [[languages[index] for index in share] for share in shares]
        if count == 1:  # which has all processors, on the caller's thread
            found = [self._transcribed(waveforms[0], spoken[0], 1)]
        else:
            found = list(self._threads.map(self._on_thread, waveforms, spoken, repeat(count)))
        transcripts = dict(zip(chain.from_iterable(shares), chain.from_iterable(found), strict=True))
        return [transcripts[index] for index in range(len(pcm))]

    def _on_thread(self, pcm: Sequence[Samples], languages: Sequence[str | None], threads: int) -> list[Transcript]:
        import torch

        torch.set_num_threads(max(1, self._processors // threads))  # of this thread alone
        with self._lock:
            self._at_work.add(threading.get_ident())
        try:
            return self._transcribed(pcm, languages, threads)
        finally:
            with self._lock:
                self._at_work.discard(threading.get_ident())

    def _transcribed(self, pcm: Sequence[Samples], languages: Sequence[str | None], threads: int) -> list[Transcript]:
        import torch

        from models import Float16OverflowError
        from models.device.memory import is_out_of_memory

        longest = max(map(len, pcm), default=0) / self._model.sample_rate
        while True:
            batch_seconds = self._batch_seconds / threads
            options = self._options | {"language": languages, "batch_seconds": batch_seconds}
            try:
                return self._model.transcribe(pcm, **options)
            except Float16OverflowError as error:
                raise JobError(str(error)) from error
            except Exception as error:
                if not is_out_of_memory(error) or batch_seconds <= longest:  # then the longest one alone does not fit
                    raise
            # Only here, where the error is gone, is what its frames held free.
            torch.cuda.empty_cache()
            self._batch_seconds = min(self._batch_seconds, threads * batch_seconds / 2)


def balanced(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Divide utterances into at most ``most`` shares of about the same length, each of the indices of its utterances.

    There are fewer shares if one would be more than a tenth longer than their mean, for the other threads would idle.
    """
    longest_first = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    for count in range(min(most, len(lengths)), 1, -1):
        shares: list[list[int]] = [[] for _ in range(count)]
        sums = [0] * count
        for index in longest_first:
            least = sums.index(min(sums))
            shares[least].append(index)
            sums[least] += lengths[index]
        if max(sums) <= _MOST_IMBALANCE * sum(sums) / count:
            return shares
    return [longest_first]
