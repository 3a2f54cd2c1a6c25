"""A job on a Ray cluster: one actor for each device, each of which gets a new shard when it has finished one.

The driver knows which actor has which shard, and holds no audio and no rows: actors read recordings and write shards
themselves. A shard whose actor or node is lost goes to another actor. Its recordings still have one row each, because
a shard's file is written as a whole or not at all.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bulk.errors import JobError
from bulk.rows import Tally
from bulk.transcription import transcribe_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bulk.file_transcripts import Options
    from bulk.job import Job, ShardWriter
    from bulk.plan import Shard
    from models import Transcriber

# An actor has its next shard before the current one is done, so that its device does not wait.
_SHARDS_AHEAD = 2
# A shard is left out after this number of actors died on it.
_MOST_LOSSES = 3
_LOOK_SECONDS = 5.0  # between looks for devices without an actor
_MOST_SECONDS_WITHOUT_A_DEVICE = 120.0


class TranscribingActor:
    """The actor of a device: a thread that loads a model, and transcribes and writes shard after shard."""

    def __init__(self, load: Callable[[], Transcriber], options: Options, writer: ShardWriter) -> None:
        self._load, self._options, self._writer = load, options, writer
        self._inbox: queue.SimpleQueue[tuple[Shard, Future[Tally]]] = queue.SimpleQueue()
        self._under_way: deque[Future[Tally]] = deque()
        threading.Thread(target=self._work, daemon=True).start()

    def transcribe(self, shard: Shard) -> Tally:
        """Transcribe and write a shard; return when it is written.

        Raises:
            JobError: if the model cannot be loaded, or the shard cannot be written.
            Exception: whatever the model raised; the actor cannot be used any more.
        """
        done: Future[Tally] = Future()
        self._inbox.put((shard, done))
        return done.result()

    def _work(self) -> None:
        try:
            model = self._loaded()
            while True:
                first, done = self._inbox.get()
                self._under_way.append(done)
                for shard, outcomes in transcribe_shards(model, self._shards(first), self._options):
                    written = self._writer.write(shard, outcomes)
                    self._under_way.popleft().set_result(written)
        except BaseException as error:  # noqa: BLE001  # passed on to the threads that wait
            while True:
                waiting = self._under_way.popleft() if self._under_way else self._inbox.get()[1]
                waiting.set_exception(error)

    def _loaded(self) -> Transcriber:
        try:
            return self._load()
        except Exception as error:
            raise JobError(str(error)) from error

    def _shards(self, first: Shard) -> Iterator[Shard]:
        """Yield ``first`` and those that wait; end when none does, so that decoded audio does not wait for more."""
        yield first
        while True:
            try:
                shard, done = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._under_way.append(done)
            yield shard


@dataclass(frozen=True, slots=True)
class ClusterDevice:
    """A device of a cluster: a GPU of a node, or a node's cores.

    Its actor takes its share of the node's cores: none beside a GPU if they are fewer than the GPUs.
    """

    node: str
    number: int
    gpus: int
    cpus: int


def cluster_devices(nodes: list[dict[str, Any]], device: str) -> list[ClusterDevice]:
    """Return the devices of a cluster, by ``ray.nodes()``: cuda, cpu, or auto for GPUs where it has any."""
    alive = [(node["NodeID"], node["Resources"]) for node in nodes if node["Alive"]]
    found = [
        ClusterDevice(name, number, 1, int(resources.get("CPU", 0)) // int(resources["GPU"]))
        for name, resources in alive
        for number in range(int(resources.get("GPU", 0)))
        if device != "cpu"
    ]
    if found or device == "cuda":
        return found
    return [
        ClusterDevice(name, 0, 0, int(resources["CPU"])) for name, resources in alive if resources.get("CPU", 0) >= 1
    ]


@dataclass(eq=False)
class _Worker:
    device: ClusterDevice
    actor: Any
    calls: dict[object, Shard] = field(default_factory=dict)
    suspect: bool = False  # has a shard that was lost with another actor, so it gets no other shard


class RayEngine:
    """Transcribes shards with one actor on each device of a Ray cluster.

    The cluster is that of ``RAY_ADDRESS``, or else the one on this machine, which Ray starts if there is none. Each
    actor loads the model.

    Attributes:
        devices: most devices that worked at the same time.

    Raises:
        JobError: if Ray is not installed, or there is no such cluster.
    """

    def __init__(self, load: Callable[[], Transcriber], options: Options, device: str) -> None:
        # `ray start` asks its user about usage statistics; a cluster that starts here sends none.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ModuleNotFoundError as error:
            raise JobError(f"{error.name} is not installed; it comes with: pip install 'steno[ray]'") from error
        try:
            ray.init(log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise JobError(f"no Ray cluster: {error}") from error
        self._load, self._options, self._device = load, options, device
        self._workers: dict[ClusterDevice, _Worker] = {}
        self._waiting: deque[Shard] = deque()
        self._losses: Counter[int] = Counter()
        self._losses_in_a_row = 0
        self.devices = 0

    def run(self, job: Job, progress: Callable[[Tally], object]) -> Tally:
        """Transcribe what is left of a job, and return its tally; ``progress`` gets that of each shard.

        Raises:
            JobError: if the model cannot be loaded, shards cannot be written, there is no device, or actors die one
                after the other and finish nothing.
        """
        import ray

        total = Tally()
        self._waiting.extend(job.left)
        try:
            for done in self._tallies(job.writer):
                progress(done)
                total += done
        finally:
            ray.shutdown()
        return total

    def _tallies(self, writer: ShardWriter) -> Iterator[Tally]:
        import ray

        looked = had_device = time.monotonic()
        self._staff(writer)
        while self._waiting or any(worker.calls for worker in self._workers.values()):
            self._hand_out()
            calls = {call: worker for worker in self._workers.values() for call in worker.calls}
            ready: list[object] = []
            if calls:
                ready, _ = ray.wait(list(calls), timeout=_LOOK_SECONDS)
            else:
                time.sleep(_LOOK_SECONDS / 10)
            for call in ready:  # one at most
                yield from self._finished(calls[call], call)
            now = time.monotonic()
            if now - looked > _LOOK_SECONDS or not self._workers:
                looked = now
                self._staff(writer)
            had_device = now if self._workers else had_device
            if now - had_device > _MOST_SECONDS_WITHOUT_A_DEVICE:
                raise JobError(f"the Ray cluster has no device (--device {self._device})")

    def _staff(self, writer: ShardWriter) -> None:
        """Start an actor on each device without one: at first, after a loss, and on new nodes."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        for device in cluster_devices(ray.nodes(), self._device):
            if device in self._workers:
                continue
            actor = ray.remote(TranscribingActor).options(
                num_cpus=device.cpus,
                num_gpus=device.gpus,
                max_concurrency=_SHARDS_AHEAD,
                scheduling_strategy=NodeAffinitySchedulingStrategy(device.node, soft=False),
            )
            options = replace(self._options, threads=max(self._options.threads, device.cpus))
            self._workers[device] = _Worker(device, actor.remote(self._load, options, writer))
        self.devices = max(self.devices, len(self._workers))

    def _hand_out(self) -> None:
        for _ in range(_SHARDS_AHEAD):  # one to each worker in turn, which spreads the last shards
            for worker in self._workers.values():
                if not self._waiting or worker.suspect or len(worker.calls) >= _SHARDS_AHEAD:
                    continue
                if self._losses[self._waiting[0].number]:
                    # A suspect shard runs alone, so that no other is lost with it.
                    if worker.calls:
                        continue
                    worker.suspect = True
                shard = self._waiting.popleft()
                worker.calls[worker.actor.transcribe.remote(shard)] = shard

    def _finished(self, worker: _Worker, call: object) -> Iterator[Tally]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            done = ray.get(call)
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(cause, JobError):
                raise cause from None
            yield from self._lost(worker, cause)
        else:
            self._losses_in_a_row = 0
            worker.suspect = False
            del worker.calls[call]
            yield done

    def _lost(self, worker: _Worker, cause: BaseException) -> Iterator[Tally]:
        import ray

        ray.kill(worker.actor)  # it may still be alive, but cannot be trusted
        del self._workers[worker.device]
        self._losses_in_a_row += 1
        if self._losses_in_a_row > _MOST_LOSSES * (1 + self.devices):
            raise JobError(f"workers die before they finish a shard: {_line(cause)}")
        for shard in reversed(worker.calls.values()):
            self._losses[shard.number] += 1
            if self._losses[shard.number] < _MOST_LOSSES:
                self._waiting.appendleft(shard)
            else:
                yield Tally(left_out=len(shard.entries))


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
