"""The recognizers of the real engine process: models on its device. Only this file of the service imports torch."""

import gc
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from audio.samples import Samples
from models import (
    LanguageIdentifier,
    Recognition,
    Transcriber,
    bundled,
    checkpoint_path,
    default_dtype,
    load_identifier,
    load_model,
)
from models.device.cpu import processor
from models.device.fast_paths import FAST_PATHS, FastPath, PathState
from models.device.gpu import has_gpu
from models.device.memory import free_after, is_out_of_memory, leave_room
from models.device.precision import dtype_of_identifier
from models.download import OnDownload
from models.language_identifier import PendingProbabilities
from service.engine import loop
from service.engine.budgets import KNEE_SHARE, knee, least_fast_enough
from service.engine.download import DownloadReport
from service.engine.identity import identity
from service.engine.kept import BUDGETS, bar, barred
from service.engine.known_speech import PATH as KNOWN_SPEECH
from service.engine.known_speech import known_speech
from service.engine.loop import Collated, Recognized
from service.engine.protocol import Barred, FailureKind, Load, ModelInfo, Ready, Trying
from service.engine.shapes import most_rows, padded_samples
from transcripts.alphabets import a_narrow_language
from transcripts.prompt import DEFAULT_PROMPT, Prompt
from transcripts.spoken_language import Probabilities
from transcripts.transcript import FlatTranscripts, Transcript, Transcripts

# The default batch budget in audio-seconds, padding included. A batch's fixed cost is the work of one core, so more
# cores need more audio to make its share small. Still larger batches are hardly faster on a CPU, and requests wait for
# them (`benchmarks budget`). A GPU needs more; this is the most that it tries.
_CPU_BATCH_SECONDS_PER_CORE = 30.0
_LEAST_CPU_BATCH_SECONDS = 60.0
_GPU_BATCH_SECONDS = 1920.0
# A CPU's knee needs two times, one clip's and that of several; a GPU's needs those of each budget. They are the least
# of some rounds: in the first, a GPU's libraries choose kernels. If a batch takes longer than the patience, a CPU's
# default budget stays, and a GPU's is too large.
_KNEE_SECONDS, _KNEE_ROWS, _KNEE_ROUNDS, _KNEE_PATIENCE = 7.0, 6, 3, 3.0
# A GPU gets its next batch while it computes; on a CPU nothing overlaps, and a batch formed later is fuller.
_SLOTS = {"cpu": 1, "cuda": 2}
_WARMUP_SEED = 0
# A model up to this size is loaded once more, on the CPU in float32, to transcribe known speech by plain operations.
_SMALL_WEIGHT_BYTES = 200_000_000
_SPEED_STEP = 3  # between the buckets that measure the speed
_MOST_BATCHES_NOT_FINITE = 3  # in a row

log = logging.getLogger("steno.engine")


class DeviceRecognizer(ABC):
    """A model on its device, its shapes, and the health of its outputs.

    Args:
        checkpoint: the path that it was loaded from.
        identity: identity of the files there; None where they cannot change.
    """

    def __init__(
        self, load: Load, served: Transcriber | LanguageIdentifier, checkpoint: str, identity: str | None
    ) -> None:
        self._served = served
        self._model = model = served.model if isinstance(served, Transcriber) else served
        self._load = load
        self._device = device = model.device
        self._threads, self._shared_threads = load.threads, load.shared_threads
        self._sanity = Sanity()
        self._checkpoint, self._identity = checkpoint, identity
        where = {"device": _device_name(device), "dtype": model.precision}
        info = msgspec.convert(served.info() | where, ModelInfo)
        tags = served.model.language_tags if isinstance(served, Transcriber) else {}
        self._info = msgspec.structs.replace(info, language_tags=tags)
        narrow = a_narrow_language(info.scripts)
        self._masking = Prompt(written_languages=(narrow,)) if narrow else None
        self._token_bytes: Sequence[bytes] = ()
        self.sample_rate: int = model.sample_rate
        self._setup = _setup(model.precision, device, identity, load)
        self.batch_seconds = load.batch_seconds or _default_batch_seconds(device)
        # A GPU gets few distinct shapes; a CPU computes no more padding than it must.
        self._padded_samples = [] if device.type == "cpu" else padded_samples(load.bucket_seconds, self.sample_rate)
        self.padded_seconds = [samples / self.sample_rate for samples in self._padded_samples]

    def share_processors(self, engines: int) -> None:
        """Give the next batch a share of the threads, at least its own."""
        if self._shared_threads:
            _use_threads(max(self._threads or 1, self._shared_threads // engines))

    @abstractmethod
    def recognize(self, collated: Collated, prompts: Sequence[Prompt], decoder: str | None) -> Recognized:
        """Launch a batch on the device."""

    @property
    @abstractmethod
    def _decoders(self) -> Sequence[str | None]:
        """Its decoders, the default first."""

    def warm_up(self) -> Iterator[tuple[float, float]]:
        """Warm up batch by batch, the largest first so that the allocator's pool is sized once.

        A GPU runs each bucket with each decoder in each size that has graphs to capture. A CPU has no graphs; to
        measure its speed, some buckets are enough, and clients wait while a lost engine is replaced.
        """
        noise = np.random.default_rng(_WARMUP_SEED)
        is_new = self._load.batch_seconds is None and (yield from self._measure_budget(noise))
        while self._may_shrink:
            if (yield from self._fits(self._run_buckets(noise))):
                break
            extra = {"model": self._load.model, "batch_seconds": self.batch_seconds}
            log.warning("the batch budget does not fit the device", extra=extra)
            self.batch_seconds = max(self.batch_seconds / 2, *self.padded_seconds)
        else:
            yield from self._run_buckets(noise)
        if is_new:  # one that was kept stays: the memory may have been short for a while only
            BUDGETS.keep(self._setup, self.batch_seconds)

    @property
    def _may_shrink(self) -> bool:
        """Whether a smaller budget may be tried if this one does not fit.

        A measured budget may not fit: it was found before all graphs were captured, or with more free memory.
        """
        is_gpu = self._device.type == "cuda"
        return is_gpu and self._load.batch_seconds is None and self.batch_seconds > max(self.padded_seconds)

    def _run_buckets(self, noise: np.random.Generator) -> Iterator[tuple[float, float]]:
        on_gpu = self._device.type == "cuda"
        lengths = self.padded_seconds if on_gpu else sorted(self._load.bucket_seconds)[::-_SPEED_STEP]
        for seconds in sorted(lengths, reverse=True):
            most = most_rows(self.batch_seconds, seconds) if on_gpu else 1
            samples = self._noise(noise, most, seconds)
            sizes = self._model.prepare(*samples.shape)
            for decoder in self._decoders if on_gpu else self._decoders[:1]:
                for rows in sizes:
                    yield self._run(samples[:rows], decoder)
                    if on_gpu and self._masking:
                        yield self._run(samples[:rows], decoder, self._masking)

    def _measure_budget(self, noise: np.random.Generator) -> Generator[tuple[float, float], None, bool]:
        """Measure the batch budget, unless it is known; return whether it was measured.

        Yields the audio-seconds and the seconds of each batch run for it.
        """
        if (known := BUDGETS.find(self._setup)) is not None:
            self.batch_seconds = known
            return False
        if self._device.type == "cuda":
            self.batch_seconds = yield from least_fast_enough(
                max(self.padded_seconds), self.batch_seconds, lambda budget: self._speed(budget, noise)
            )
            self._model.drop_sizes()  # those of larger budgets would stay
        else:
            took: dict[int, float] = {}
            for rows in (1, _KNEE_ROWS) * _KNEE_ROUNDS:
                step = self._run(self._noise(noise, rows, _KNEE_SECONDS), None)
                yield step
                if step[1] > _KNEE_PATIENCE:  # the fixed cost of a batch is small for such a model
                    return False
                took[rows] = min(step[1], took.get(rows, step[1]))
            knee_seconds = knee(took[1], took[_KNEE_ROWS], _KNEE_ROWS, _KNEE_SECONDS)
            # Bounded, because a knee measured on a busy machine may be wrong, and requests wait while a batch runs.
            self.batch_seconds = min(max(knee_seconds, _LEAST_CPU_BATCH_SECONDS), 2 * self.batch_seconds)
        log.info("measured a batch budget", extra={"model": self._load.model, "batch_seconds": self.batch_seconds})
        return True

    def _speed(self, budget: float, noise: np.random.Generator) -> Generator[tuple[float, float], None, float]:
        """Return the audio-seconds in a second of some of the largest batches of a budget; 0 if it is too large."""
        steps: dict[float, tuple[float, float]] = {}
        for _ in range(_KNEE_ROUNDS):
            if not (yield from self._fits(self._run_some(budget, noise, steps))):
                return 0.0
        audio, busy = zip(*steps.values(), strict=True)
        return sum(audio) / sum(busy) if max(busy) <= _KNEE_PATIENCE else 0.0

    def _run_some(
        self, budget: float, noise: np.random.Generator, steps: dict[float, tuple[float, float]]
    ) -> Iterator[tuple[float, float]]:
        """Run the largest batches of some buckets, and note in ``steps`` the fastest so far of each."""
        for seconds in sorted(self.padded_seconds)[::-_SPEED_STEP]:
            step = self._run(self._noise(noise, most_rows(budget, seconds), seconds), self._decoders[0])
            steps[seconds] = min(step, steps.get(seconds, step))
            yield step

    def _fits(self, batches: Iterator[tuple[float, float]]) -> Generator[tuple[float, float], None, bool]:
        """Run batches, and return whether they fit the device."""
        try:
            yield from batches
        except Exception as error:
            if self.kind_of(error) is FailureKind.OUT_OF_MEMORY:
                self._model.drop_sizes()  # what is tried next has other sizes
                return False
            raise
        return True

    def _noise(self, generator: np.random.Generator, rows: int, seconds: float) -> Samples:
        return generator.standard_normal((rows, round(seconds * self.sample_rate))).astype(np.float32) * 0.1

    def _run(self, samples: Samples, decoder: str | None, prompt: Prompt = DEFAULT_PROMPT) -> tuple[float, float]:
        """Recognize a batch [rows, samples]; return its audio-seconds and the seconds that it took."""
        _use_threads(self._threads)  # a batch of another model may have had more
        began = time.monotonic()
        self.recognize(self.collate(list(samples)), [prompt] * len(samples), decoder).wait()
        return samples.size / self.sample_rate, time.monotonic() - began

    def ready(self, **measured: float) -> Ready:
        """Describe it as ready, with what was measured."""
        return Ready(
            model=self._load.model,
            info=self._info,
            token_bytes=list(self._token_bytes),
            sample_rate=self.sample_rate,
            batch_seconds=self.batch_seconds,
            slots=_SLOTS[self._device.type],
            weight_bytes=self._served.weight_bytes,
            padded_seconds=self.padded_seconds,
            checkpoint=self._checkpoint,
            identity=self._identity,
            graphs=self._model.graphs(),
            fast_paths=self.fast_paths(),
            **measured,
        )

    def fast_paths(self) -> dict[str, str]:
        """Return what became of each fast path; nothing on a CPU, which has none."""
        return FAST_PATHS.states() if FAST_PATHS.suits(self._device) else {}

    def collate(self, utterances: Sequence[Samples]) -> Collated:
        """Copy utterances, padded, to memory that the device reads."""
        longest = max(len(samples) for samples in utterances)
        width = next((samples for samples in self._padded_samples if samples >= longest), longest)
        return Collated(self._model.batch(utterances, width), len(utterances) * width / self.sample_rate)

    def kind_of(self, error: Exception) -> FailureKind:
        """Classify an error by trying the device: a broken CUDA context fails each later call."""
        if isinstance(error, NotFiniteError) and self._sanity.is_lost:
            return FailureKind.DEVICE
        if self._device.type == "cuda":
            try:
                torch.cuda.synchronize(self._device)
            except RuntimeError:
                return FailureKind.DEVICE
        if is_out_of_memory(error):
            free_after(error)
            return FailureKind.OUT_OF_MEMORY
        return FailureKind.BATCH

    def release(self) -> None:
        """Free the model's memory."""
        if self._device.type == "cuda":
            with suppress(RuntimeError):  # if the device is lost
                torch.cuda.synchronize(self._device)  # an abandoned search may still write to it
        del self._model, self._served
        gc.collect()  # graphs and buffers may refer to each other
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


class SpeechRecognizer(DeviceRecognizer):
    """A model that transcribes."""

    def __init__(self, load: Load, on_download: OnDownload) -> None:
        device = _prepared(load)
        checkpoint, identity = _located(load, on_download)
        dtype = default_dtype(device) if load.dtype == "auto" else load.dtype
        model = load_model(checkpoint, device, dtype, on_download=on_download, **_options(load))
        self._served: Transcriber
        super().__init__(load, model, checkpoint, identity)
        self._token_bytes = model.token_bytes
        self._known_speech: str | None = None

    @property
    def _decoders(self) -> Sequence[str | None]:
        return self._served.decoders

    def warm_up(self) -> Iterator[tuple[float, float]]:
        """Warm up, and compare what fast paths make of known speech, once for each device with these versions."""
        yield from super().warm_up()
        states = set(super().fast_paths().values())
        if not FAST_PATHS.suits(self._device) or states <= {str(PathState.OFF)}:
            return
        setup = _setup_of_fast_paths(self._device)
        what = f"{KNOWN_SPEECH} of {self._setup}"
        self._known_speech = barred(setup).get(what)
        if self._known_speech is None:
            is_bundled = self._load.checkpoint == bundled.NAME
            arguments = self._load.model, self.sample_rate, self._text, self._plain_text
            self._known_speech = known_speech(*arguments, is_bundled=is_bundled)
            if self._known_speech is not None:
                bar(setup, what, self._known_speech)

    def fast_paths(self) -> dict[str, str]:
        """Return what became of each fast path, and of all of them together with known speech."""
        return super().fast_paths() | ({KNOWN_SPEECH: self._known_speech} if self._known_speech else {})

    def _text(self, samples: Samples) -> str:
        prompts, decoder = [DEFAULT_PROMPT], self._served.decoders[0]
        waveforms, lengths = self.collate([samples]).batch
        (transcript,) = self._served.recognize_batch(waveforms, lengths, decoder=decoder, prompts=prompts).transcripts()
        return transcript.text

    def _plain_text(self, samples: Samples) -> str:
        """Transcribe without fast paths: a small model on the CPU in float32, a large one where it is."""
        if self._served.weight_bytes > _SMALL_WEIGHT_BYTES:
            with FAST_PATHS.plainly():
                return self._text(samples)
        model = load_model(self._checkpoint, "cpu", torch.float32, **_options(self._load))
        return model.transcribe([samples])[0].text

    def recognize(self, collated: Collated, prompts: Sequence[Prompt], decoder: str | None) -> Recognized:
        """Launch a batch on the device."""
        recognition = self._served.recognize_batch(*collated.batch, decoder=decoder, prompts=prompts)
        return Recognized(recognition.wait, partial(transcripts_of, recognition, self._sanity))


class LanguageRecognizer(DeviceRecognizer):
    """A language identifier; it has no decoders and takes no prompts."""

    def __init__(self, load: Load, on_download: OnDownload) -> None:
        device = _prepared(load)
        checkpoint, identity = _located(load, on_download)
        try:
            model = load_identifier(checkpoint, device, dtype_of_identifier(load.dtype, device), on_download)
        except ValueError as error:
            raise ValueError(f"the language identifier {load.checkpoint} cannot be loaded: {error}") from error
        self._served: LanguageIdentifier
        super().__init__(load, model, checkpoint, identity)

    @property
    def _decoders(self) -> Sequence[str | None]:
        return (None,)

    def recognize(
        self,
        collated: Collated,
        prompts: Sequence[Prompt],  # noqa: ARG002
        decoder: str | None,  # noqa: ARG002
    ) -> Recognized:
        """Launch a batch on the device."""
        pending = self._served.launch(*collated.batch)
        return Recognized(pending.wait, partial(_probabilities, pending, self._sanity))


def recognizer(load: Load, on_download: DownloadReport) -> DeviceRecognizer:
    """Load what the message asks for, with the fast paths that it may take."""
    device = _device(load.device)
    if device.type == "cuda":
        _choose_fast_paths(load, device, on_download.send)
    return (LanguageRecognizer if load.identifies else SpeechRecognizer)(load, on_download)


def _choose_fast_paths(load: Load, device: torch.device, send: Callable[[Trying | Barred], None]) -> None:
    """Bar what the operator does not want and what has failed here before, and have further trials reported."""
    setup = _setup_of_fast_paths(device)
    FAST_PATHS.limit(load.fast_paths)
    for path, state in (barred(setup) | load.barred).items():
        with suppress(ValueError):  # of another version of Steno
            FAST_PATHS.bar(FastPath(path), PathState(state), "in an earlier engine")
    FAST_PATHS.on_trying = lambda path: send(Trying(setup, path))
    FAST_PATHS.on_barred = lambda path, state: send(Barred(setup, path, state))


def _setup_of_fast_paths(device: torch.device) -> str:
    """Return what the fate of fast paths depends on."""
    versions = f"driver {driver()}, torch {torch.__version__}, triton {_version_of('triton')}"
    return f"{_device_name(device)}, {versions}"


def driver() -> str | None:
    """Return the version of NVIDIA's driver, as its kernel module says."""
    with suppress(OSError):
        found = re.search(r"Kernel Module\D*([\d.]+)", Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
        return found and found[1]
    return None


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class NotFiniteError(ArithmeticError):
    """The device computed values that are not numbers, so the transcript would be garbage."""


class Sanity:
    """Counts batches in a row whose outputs are not numbers: a recording may spoil some, a broken device spoils all."""

    def __init__(self) -> None:
        self._in_a_row = 0

    @property
    def is_lost(self) -> bool:
        """Whether the device or the weights on it must be broken."""
        return self._in_a_row >= _MOST_BATCHES_NOT_FINITE

    def check(self, outputs: Iterable[float]) -> None:
        """Check a batch.

        Raises:
            NotFiniteError: if a confidence or probability in it is not a number.
        """
        if math.isfinite(sum(outputs)):  # only if all are
            self._in_a_row = 0
            return
        self._in_a_row += 1
        raise NotFiniteError(f"outputs of the model are no numbers, {self._in_a_row} batches in a row")


def transcripts_of(recognition: Recognition, sanity: Sanity) -> Transcripts:
    """Detokenize a batch.

    Raises:
        NotFiniteError: if its outputs are not numbers.
    """
    transcripts = recognition.detokenized()
    sanity.check(_confidences(transcripts))
    return _without_frames(transcripts)


def _confidences(transcripts: Transcripts) -> Iterable[float]:
    """Return the confidences of all tokens, or their sum, which is finite only if all are."""
    if isinstance(transcripts, FlatTranscripts):
        return [float(np.frombuffer(transcripts.token_confidence, np.float32).sum())]
    return chain.from_iterable(transcript.token_confidence for transcript in transcripts)


def _without_frames(transcripts: Transcripts) -> Transcripts:
    """Return the transcripts without the frames of tokens, for which the front has no use."""
    if isinstance(transcripts, FlatTranscripts):
        others = {index: Transcript(*transcript[:4]) for index, transcript in transcripts.others.items()}
        return replace(transcripts, frames=None, durations=None, others=others)
    return [Transcript(*transcript[:4]) for transcript in transcripts]


def _probabilities(pending: PendingProbabilities, sanity: Sanity) -> list[Probabilities]:
    """Return the probability of each language in each utterance; raises what ``transcripts_of`` does."""
    probabilities = pending.probabilities()
    sanity.check(chain.from_iterable(row.values() for row in probabilities))
    return probabilities


def _use_threads(threads: int | None) -> None:
    """Set the CPU threads of a batch; in torch the number holds for the calling thread alone."""
    if threads is not None:
        torch.set_num_threads(threads)


def _prepared(load: Load) -> torch.device:
    """Return the device of a model, after limiting its threads and its tensors."""
    device = _device(load.device)
    leave_room(device)
    _use_threads(load.threads)
    return device


def _located(load: Load, on_download: OnDownload) -> tuple[str, str | None]:
    """Return the path of a checkpoint, downloaded if it is on the hub, and its identity.

    Raises:
        ValueError: if it has changed since an earlier engine loaded it.
    """
    if load.checkpoint == bundled.NAME:  # a path would lose its languages and language model
        return load.checkpoint, None
    path = checkpoint_path(load.checkpoint, on_download)
    if not path.exists():  # the loader reports this
        return str(path), None
    found = identity(path)
    if load.identity not in (None, found):
        raise ValueError(
            f"{path} has changed since it was loaded: requests would be answered by two models; start the service again"
        )
    return str(path), found


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if has_gpu() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not has_gpu():
        raise ValueError(f"device {name!r}: this machine, or this build of torch, has no CUDA")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ValueError(f"device {name!r}: the last of this machine is cuda:{count - 1}")
    if device.type not in _SLOTS:
        raise ValueError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    return device


def _options(load: Load) -> dict[str, Any]:
    """Return the options of a model that change the speed and the memory of its batches."""
    return {name: getattr(load, name) for name in ("attention_context", "beam", "language_model", "aligner")}


def _setup(precision: str, device: torch.device, identity: str | None, load: Load) -> str:
    """Return all that a budget depends on."""
    is_gpu = device.type == "cuda"
    parts = (
        identity or load.checkpoint,
        _device_name(device) if is_gpu else f"{processor()}, {torch.get_num_threads()} threads",
        precision,
        f"up to {max(load.bucket_seconds):g} s",
        *(f"{name}={value}" for name, value in _options(load).items() if value is not None),
        f"steno {version('steno')}, torch {torch.__version__}, {KNEE_SHARE:.0%}",
    )
    return ", ".join(parts)


def _default_batch_seconds(device: torch.device) -> float:
    if device.type == "cuda":
        return _GPU_BATCH_SECONDS
    return max(_LEAST_CPU_BATCH_SECONDS, _CPU_BATCH_SECONDS_PER_CORE * torch.get_num_threads())


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


if __name__ == "__main__":
    loop.main(recognizer, has_gpu)
