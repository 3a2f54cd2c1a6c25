"""Look-ahead in CUDA graphs, for batches of a few sizes, each with its own state and graph (drivers/graph.py).

Graphs run in a side stream, beside the encoding of the next batch.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath
from models.device.memory import is_out_of_memory
from models.graphs.side_stream import SideStream
from models.graphs.sizes import Sizes, frame_size, row_sizes, says_it_cannot_capture
from models.heads.transducer import Joint, Predictor
from models.kernels import products_suit
from models.search.drivers.graph import GraphDriver
from models.search.look_ahead import LookAhead, look_ahead, window_of
from models.search.result import FetchedResult
from models.search.state import TransducerState

# A search in graphs is compared with plain operations on a batch of up to this size. In half precision, ties and the
# order of sums may change a row.
_COMPARED_ROWS, _COMPARED_FRAMES = 16, 64
_EQUAL_SHARE = 0.9


class Form(Protocol):
    """The steps, in plain operations or in kernels."""

    projected: Tensor

    def two_steps(self, state: TransducerState) -> None:
        """Do two steps."""


NewForm = Callable[[Tensor, Predictor, Joint, int], Form]


class GraphedLookAhead:
    """Greedy transducer search in graphs that do not wait for the host.

    Batches of similar size share a state; each size allocates its memory once, at its first batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        joint: Joint,
        max_symbols: int,
        *,
        fused: bool | None = None,
        loops: bool = True,
        window: int | None = None,
    ) -> None:
        """Prepare to search.

        Args:
            predictor: the predictor, folded.
            joint: the joint.
            max_symbols: labels after which a frame is left without a blank.
            fused: whether steps use our kernels; None: on a GPU that they suit.
            loops: whether a GPU repeats steps by itself, if it can.
            window: frames that a step scores; None chooses by the number of rows.
        """
        self._predictor = predictor
        self._joint = joint
        self._max_symbols = max_symbols
        weight = joint.output.weight
        self.fused = weight.is_cuda and products_suit(weight.device, weight.dtype) if fused is None else fused
        self._compared: set[FastPath] = set()
        self._loops = loops
        self._window = window
        self._side_stream = SideStream(weight.device)
        self.sizes: Sizes[_Prepared] = Sizes(weight.device)

    @torch.no_grad()
    def search(self, encoded: Tensor, lengths: Tensor) -> FetchedResult:
        """Search a batch, as ``look_ahead`` does.

        Args:
            encoded: [batch, frames, width], in the dtype of the joint; later work of the device may overwrite it.
            lengths: valid frames of each row, [batch]; may be overwritten too.
        """
        prepared = self._prepared(encoded) if encoded.size(0) and encoded.size(1) else None
        if prepared is None:
            return look_ahead(encoded, lengths, self._predictor, self._joint, self._max_symbols).fetched()
        return prepared.search(encoded, lengths)

    def _prepared(self, encoded: Tensor) -> "_Prepared | None":
        if not FAST_PATHS.allows(FastPath.SEARCH_GRAPHS):
            return None
        rows, frames = row_sizes(encoded.size(0))[0], frame_size(encoded.size(1))
        known = self.sizes.get((rows, frames), lambda: self._prepare(encoded.new_zeros(rows, frames, encoded.size(2))))
        return known if FAST_PATHS.allows(FastPath.SEARCH_GRAPHS) else None

    def _prepare(self, largest: Tensor) -> "_Prepared":
        """Prepare a size by the strongest form that finds what look-ahead in plain operations finds."""
        if self.fused and FAST_PATHS.allows(FastPath.SEARCH):
            with FAST_PATHS.trying(FastPath.SEARCH, _says_nothing_of_kernels):
                from models.search.fused_look_ahead import FusedLookAhead  # only a GPU has Triton

                prepared = self._prepare_with(FusedLookAhead, largest)
                if self._agrees(prepared, largest, FastPath.SEARCH):
                    return prepared
        prepared = self._prepare_with(LookAhead, largest)
        if not self._agrees(prepared, largest, FastPath.LOOP if prepared.loops else FastPath.SEARCH_GRAPHS):
            prepared = self._prepare_with(LookAhead, largest)
            self._agrees(prepared, largest, FastPath.SEARCH_GRAPHS)
        return prepared

    def _agrees(self, prepared: "_Prepared", largest: Tensor, path: FastPath) -> bool:
        """Compare the first size with look-ahead in plain operations, on noise; bar the path if it disagrees."""
        if not FAST_PATHS.suits(largest.device) or path in self._compared:
            return True
        self._compared.add(path)
        with FAST_PATHS.trying(path, lambda _: True):
            return self._finds_the_same(prepared, largest, path)

    def _finds_the_same(self, prepared: "_Prepared", largest: Tensor, path: FastPath) -> bool:
        rows, frames = min(_COMPARED_ROWS, largest.size(0)), min(_COMPARED_FRAMES, largest.size(1))
        generator = torch.Generator(largest.device).manual_seed(0)
        encoded = torch.randn(rows, frames, largest.size(2), generator=generator, device=largest.device)
        lengths = torch.arange(rows, 0, -1, device=largest.device) * frames // rows
        encoded = encoded.to(largest.dtype)
        found = prepared.search(encoded, lengths).rows()
        plain = look_ahead(encoded, lengths, self._predictor, self._joint, self._max_symbols).rows()
        equal = sum(one.tokens == other.tokens for one, other in zip(found, plain, strict=True))
        enough = 1.0 if largest.dtype == torch.float32 else _EQUAL_SHARE
        why = f"{equal} of {rows} rows have the tokens of plain operations"
        return FAST_PATHS.judge(path, why, agrees=equal >= enough * rows)

    def _prepare_with(self, form: NewForm, largest: Tensor) -> "_Prepared":
        parts = self._predictor, self._joint, self._max_symbols
        window = window_of(largest.size(0)) if self._window is None else self._window
        return _Prepared(form, largest, *parts, window=window, side_stream=self._side_stream, loops=self._loops)


class _Prepared:
    """State and graph for batches with at most the rows and frames of ``largest``."""

    def __init__(
        self,
        form: NewForm,
        largest: Tensor,
        predictor: Predictor,
        joint: Joint,
        max_symbols: int,
        *,
        window: int,
        side_stream: SideStream,
        loops: bool,
    ) -> None:
        self._side_stream = side_stream
        self._joint = joint
        self._projected = joint.encoder_projection(largest)
        self._lengths = torch.zeros(largest.size(0), dtype=torch.int64, device=largest.device)
        self._state = TransducerState(self._lengths, largest.size(1), predictor, joint, max_symbols)
        self._form = form(self._projected, predictor, joint, window)
        self._going = torch.zeros(1, dtype=torch.bool, device=largest.device)
        self._driver = GraphDriver(self._advance, self._going, side_stream, loops=loops)
        self.loops = self._driver.loops

    def search(self, encoded: Tensor, lengths: Tensor) -> FetchedResult:
        rows, frames = encoded.shape[:2]
        projected = self._joint.encoder_projection(encoded)
        self._side_stream.join()  # the batch before has the state until its tokens are copied
        self._projected[:rows, :frames] = projected
        self._lengths.zero_()
        self._lengths[:rows] = lengths
        self._state.restart()
        with self._side_stream.entered():
            steps = self._driver.until_done(most=self._state.capacity + 1)
            return self._state.result(columns=min(steps, self._state.capacity)).first(rows).fetched()

    def _advance(self, steps: int) -> None:
        for _ in range(steps // 2):
            self._form.two_steps(self._state)
        self._going.copy_(self._state.active.any())


def _says_nothing_of_kernels(error: Exception) -> bool:
    return is_out_of_memory(error) or says_it_cannot_capture(error)
