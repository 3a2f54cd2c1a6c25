"""CTC beam search in CUDA graphs, for batches of a few sizes, each with its own graphs (drivers/graph.py).

Without graphs, a step takes some 80 launches, and an utterance has hundreds of steps. Graphs run in a side stream,
beside the encoding of the next batch.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath
from models.graphs.side_stream import SideStream
from models.graphs.sizes import Sizes, frame_size, row_sizes
from models.search.agreement import COMPARED_FRAMES, COMPARED_ROWS, Agreement, noise
from models.search.ctc_alignment import CtcAlignment
from models.search.ctc_beam import BEAM, CtcBeam, ctc_beam
from models.search.drivers.graph import GraphDriver
from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases
from models.search.result import FetchedResult


class GraphedCtcBeam:
    """Finds the same as ``ctc_beam``, in graphs that do not wait for the host."""

    def __init__(self, blank: int, language_model: LanguageModel, device: torch.device, beam: int = BEAM) -> None:
        """Prepare to search; graphs are captured at the first batch of their size, and sizes share memory."""
        self._parts = blank, language_model, beam
        self._side_stream = SideStream(device)
        self._agreement: Agreement[_Prepared] = Agreement(device, torch.float32)
        self.sizes: Sizes[_Prepared] = Sizes(device)

    @torch.no_grad()
    def search(self, logits: Tensor, lengths: Tensor, phrases: BatchPhrases | None = None) -> FetchedResult:
        """Search a batch as ``ctc_beam`` does; later work may overwrite it. The host drives a batch with phrases."""
        prepared = self._prepared(logits) if logits.size(0) and logits.size(1) and phrases is None else None
        if prepared is None:
            return ctc_beam(logits, lengths, *self._parts, phrases).fetched()
        return prepared.search(logits, lengths)

    def _prepared(self, logits: Tensor) -> "_Prepared | None":
        """Return the state and graphs for batches of this size; None if the host drives the search."""
        if not FAST_PATHS.allows(FastPath.SEARCH_GRAPHS):
            return None
        rows, frames, width = row_sizes(logits.size(0))[0], frame_size(logits.size(1)), logits.size(2)
        known = self.sizes.known((rows, frames))
        if known is not None:
            return known
        largest = logits.new_zeros(1).expand(rows, frames, width)
        state = [*CtcBeam.layouts(largest, self._parts[2]), CtcAlignment.steps_layout(rows, frames, columns=frames)]
        if not self.sizes.has_room((rows, frames), state):
            return None

        def prepare() -> _Prepared:
            large = self.sizes.arena.tensors(state)
            return _Prepared(largest, *self._parts, large=large, side_stream=self._side_stream)

        def search_both(prepared: _Prepared) -> tuple[FetchedResult, FetchedResult]:
            scores, lengths = noise(largest, min(COMPARED_ROWS, rows), min(COMPARED_FRAMES, frames))
            return prepared.search(scores, lengths), ctc_beam(scores, lengths, *self._parts).fetched()

        known = self.sizes.get((rows, frames), lambda: self._agreement.prepared(prepare, search_both))
        return known if FAST_PATHS.allows(FastPath.SEARCH_GRAPHS) else None


class _Prepared:
    """State and graphs for batches with at most the rows and frames of ``largest``.

    Attributes:
        loops: whether the device repeats steps by itself.
    """

    def __init__(
        self,
        largest: Tensor,
        blank: int,
        language_model: LanguageModel,
        beam: int,
        *,
        large: Sequence[Tensor],
        side_stream: SideStream,
    ) -> None:
        self._side_stream = side_stream
        *of_beam, steps = large
        side_stream.join()  # the batch before may still use the memory
        # Steps back run before a capture, and what other sizes left there would lead them out of bounds.
        steps.zero_()
        self._texts = texts = CtcBeam(largest, blank, language_model, beam, of_beam)
        self._alignment = alignment = CtcAlignment(
            texts.log_probabilities, texts.lengths, blank, columns=largest.size(1), steps=steps
        )
        self._going = torch.zeros(1, dtype=torch.bool, device=largest.device)
        self._search = self._driver(texts.step, texts.goes_on)
        self._forth = self._driver(alignment.step, alignment.goes_on)
        self._back = self._driver(alignment.step_back, alignment.goes_back)
        self.loops = self._search.loops

    def search(self, logits: Tensor, lengths: Tensor) -> FetchedResult:
        rows, frames = logits.shape[:2]
        self._side_stream.join()  # the previous batch needs the state until its tokens are copied
        self._texts.restart(logits, lengths)
        with self._side_stream.entered():
            self._search.until_done(most=frames)
            self._alignment.restart(*self._texts.found())
            self._forth.until_done(most=frames)
            self._alignment.turn()
            self._back.until_done(most=frames)
            return self._alignment.result().first(rows).fetched()

    def _driver(self, step: Callable[[], None], goes_on: Callable[[], Tensor]) -> GraphDriver:
        return GraphDriver(partial(self._advance, step, goes_on), self._going, self._side_stream)

    def _advance(self, step: Callable[[], None], goes_on: Callable[[], Tensor], steps: int) -> None:
        for _ in range(steps):
            step()
        self._going.copy_(goes_on())
