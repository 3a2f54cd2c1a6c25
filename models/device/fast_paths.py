"""The fast paths of a GPU, by name, and what became of each in this process.

A fast path is a kernel, a graph or a loop of the device that replaces plain operations. It is tried before it is used:
compared with the plain operations on the device at hand, because compilers have produced code that runs and computes
wrong numbers. One that disagrees, fails or hangs is barred, and plain operations do its work.
"""

import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TypeVar

import torch

from models.device.memory import is_out_of_memory

Found = TypeVar("Found")

log = logging.getLogger("steno.models")


class FastPath(StrEnum):
    """Names of the fast paths, for settings, metrics and logs."""

    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    FEED_FORWARD = "feed_forward"
    SUBSAMPLING = "subsampling"
    SUMS = "sums"  # of frames and a module's output, with the norm behind them
    DECODER_STEP = "decoder_step"  # of an attention decoder
    SEARCH = "search"  # the steps of a transducer's search
    ENCODER_GRAPHS = "encoder_graphs"  # from samples to encoder frames or tokens
    SEARCH_GRAPHS = "search_graphs"
    LOOP = "loop"  # of the device over a search's graph
    LOSSES = "losses"  # of transducers, in training


class PathState(StrEnum):
    """What became of a fast path."""

    USED = "used"
    SLOWER = "slower"  # than plain operations, on this device
    DISAGREED = "disagreed"  # with plain operations
    FAILED = "failed"  # did not compile, raised an error, or ended the process
    HUNG = "hung"
    OFF = "off"  # by the operator


class FastPaths:
    """What is allowed, barred and used.

    Attributes:
        on_trying: called with a path right before it is tried, and with None when no trial is under way. Who hears it
            outside knows which path has ended the process, or hangs.
        on_barred: called with a path that has disagreed or failed here, and its state.
    """

    def __init__(self) -> None:
        self.on_trying: Callable[[FastPath | None], object] = lambda _: None
        self.on_barred: Callable[[FastPath, PathState], object] = lambda *_: None
        self._states: dict[FastPath, PathState] = {}
        self._found: dict[tuple[Hashable, ...], Any] = {}
        self._trusted: set[tuple[Hashable, ...]] = set()
        self._taken: set[tuple[Hashable, ...]] = set()  # since the last trial began
        self._tried: list[FastPath] = []
        self._plain: ContextVar[frozenset[FastPath]] = ContextVar("plain", default=frozenset())

    def limit(self, names: str) -> None:
        """Allow only some paths.

        Args:
            names: "auto" for all, "none", or names with commas between them.

        Raises:
            ValueError: if a name is unknown.
        """
        wanted = {"auto": set(FastPath), "none": set()}.get(names)
        if wanted is None:
            try:
                wanted = {FastPath(name.strip()) for name in names.split(",")}
            except ValueError:
                known = ", ".join(FastPath)
                raise ValueError(f"fast paths {names!r} are not auto, none, or some of {known}") from None
        for path in set(FastPath) - wanted:
            self._states[path] = PathState.OFF

    def bar(self, path: FastPath, state: PathState, why: str = "") -> None:
        """Leave a path out for good; the first reason counts, and is logged once."""
        if not self.is_barred(path):
            self._states[path] = state
            log.warning("fast path %s %s, plain operations do its work: %s", path, state, why)
            self.on_barred(path, state)

    def judge(self, path: FastPath, why: str, *, agrees: bool) -> bool:
        """Record whether a path agrees with plain operations, and return it; ``why`` says by how much it does not.

        The kernels that its trial has taken are used from then on.
        """
        if agrees:
            self.note(path, PathState.USED)
            self._trusted |= self._taken
        else:
            self.bar(path, PathState.DISAGREED, why)
        return agrees

    def note(self, path: FastPath, state: PathState) -> None:
        """Record that a path is used, or that it is slower for some shapes; one that is barred stays so."""
        if not self.is_barred(path) and self._states.get(path) is not PathState.USED:
            self._states[path] = state

    def is_barred(self, path: FastPath) -> bool:
        """Return whether a path is left out for good."""
        return self._states.get(path) not in (None, PathState.USED, PathState.SLOWER)

    def allows(self, path: FastPath) -> bool:
        """Return whether a path may be taken here and now."""
        return not self.is_barred(path) and path not in self._plain.get()

    def kernel(
        self, path: FastPath, find: Callable[[], Found | None], device: torch.device, *others: Hashable
    ) -> Found | None:
        """Return a kernel that agreed with plain operations, or is being compared with them; else None.

        Args:
            path: its path.
            find: finds it, or returns None; called once for what follows.
            device: the device.
            others: the dtype, and what else decides which kernel it is.
        """
        key, is_tried = (path, device, *others), path in self._tried
        if not (self.suits(device) and self.allows(path) and (is_tried or key in self._trusted)):
            return None
        if key not in self._found:
            self._found[key] = find()
        found: Found | None = self._found[key]
        if is_tried and found is not None:
            self._taken.add(key)
        return found

    def has_taken(self, path: FastPath) -> bool:
        """Return whether the trial under way has taken a kernel of its path."""
        return any(path in key for key in self._taken)

    def states(self) -> dict[str, str]:
        """Return what became of each path that was met."""
        return {str(path): str(state) for path, state in self._states.items()}

    @contextmanager
    def plainly(self, *paths: FastPath) -> Iterator[None]:
        """Leave paths out in a block, in this thread; without a name, all."""
        before = self._plain.set(self._plain.get() | frozenset(paths or FastPath))
        try:
            yield
        finally:
            self._plain.reset(before)

    @contextmanager
    def trying(self, path: FastPath, passes: Callable[[Exception], bool] = is_out_of_memory) -> Iterator[None]:
        """Announce a trial of a path, and bar the path if the block fails.

        Args:
            path: the path.
            passes: returns whether an error says nothing of the path, and is raised.
        """
        self._tried.append(path)
        self._taken.clear()
        self.on_trying(path)
        try:
            yield
        except Exception as error:  # compilers and drivers have many kinds of errors
            self._end_trial()
            if passes(error):
                raise
            self.bar(path, PathState.FAILED, str(error))
        else:
            self._end_trial()

    def _end_trial(self) -> None:
        self._tried.pop()
        self.on_trying(self._tried[-1] if self._tried else None)

    def suits(self, device: torch.device) -> bool:
        """Return whether a device has fast paths; in a test, kernels run in an interpreter on a CPU."""
        return device.type == "cuda"


# A process computes on one device, so one record is enough.
FAST_PATHS = FastPaths()
