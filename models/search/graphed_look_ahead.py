"""Look-ahead in CUDA graphs, for batches of a few sizes, each with its own state and graph (drivers/graph.py).

Graphs run in a side stream, beside the encoding of the next batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath
from models.device.memory import is_out_of_memory
from models.graphs.side_stream import SideStream
from models.graphs.sizes import Sizes, frame_size, row_sizes, says_it_cannot_capture
from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint, Predictor
from models.kernels import products_suit
from models.search.agreement import COMPARED_FRAMES, COMPARED_ROWS, Agreement, noise
from models.search.drivers.graph import GraphDriver
from models.search.label_masks import LabelMasks, table_size
from models.search.language_model import LanguageModel
from models.search.look_ahead import LookAhead, look_ahead, window_of
from models.search.phrases import BatchPhrases
from models.search.result import FetchedResult
from models.search.state import TransducerState

if TYPE_CHECKING:
    from models.search.fused_look_ahead import FusedLookAhead

# The steps, in plain operations or in kernels: of projected frames, predictor, joint, window, masks and, in plain
# operations, phrases.
NewForm = Callable[..., "LookAhead | FusedLookAhead"]


class GraphedLookAhead:
    """Greedy transducer search in graphs that do not wait for the host.

    Batches of similar size share a state; each size allocates its memory once, at its first batch.
    """

    def __init__(
        self,
        predictor: AnyPredictor,
        joint: Joint,
        max_symbols: int,
        *,
        fused: bool | None = None,
        loops: bool = True,
        window: int | None = None,
        language_model: LanguageModel | None = None,
    ) -> None:
        """Prepare to search.

        Args:
            predictor: the predictor, folded.
            joint: see ``flat``, as the next, and the language model.
            max_symbols: most labels in one frame.
            fused: whether steps use our kernels; None: on a GPU that they suit.
            loops: whether a GPU repeats steps by itself, if it can.
            window: frames that a step scores; None chooses by the number of rows.
            language_model: a language model of the labels.
        """
        self._predictor = predictor
        self._joint = joint
        self._max_symbols = max_symbols
        weight = joint.output.weight
        self.fused = weight.is_cuda and products_suit(weight.device, weight.dtype) if fused is None else fused
        # The kernels compute an LSTM, and write no logits, among which a language model or phrases could choose.
        self.fused &= isinstance(predictor, Predictor) and language_model is None
        self._language_model = language_model
        self._form = partial(LookAhead, language_model=language_model)
        self._agreement: Agreement[_Prepared] = Agreement(weight.device, weight.dtype)
        self._loops = loops
        self._window = window
        self._side_stream = SideStream(weight.device)
        self.sizes: Sizes[_Prepared] = Sizes(weight.device)

    @torch.no_grad()
    def search(
        self,
        encoded: Tensor,
        lengths: Tensor,
        masks: LabelMasks | None = None,
        phrases: BatchPhrases | None = None,
    ) -> FetchedResult:
        """Search a batch as ``look_ahead`` does; later work of the device may overwrite the inputs."""
        prepared = self._prepared(encoded, masks, phrases) if encoded.size(0) and encoded.size(1) else None
        if prepared is None:
            return self._plain(encoded, lengths, masks, phrases)
        return prepared.search(encoded, lengths, masks, phrases)

    def _plain(
        self, encoded: Tensor, lengths: Tensor, masks: LabelMasks | None, phrases: BatchPhrases | None
    ) -> FetchedResult:
        parts = self._predictor, self._joint, self._max_symbols, masks
        return look_ahead(encoded, lengths, *parts, phrases=phrases, language_model=self._language_model).fetched()

    def _prepared(self, encoded: Tensor, masks: LabelMasks | None, phrases: BatchPhrases | None) -> "_Prepared | None":
        if not FAST_PATHS.allows(FastPath.SEARCH_GRAPHS):
            return None
        size: tuple[int, ...] = row_sizes(encoded.size(0))[0], frame_size(encoded.size(1))

        def prepare(terms: _Terms | None = None) -> _Prepared:
            return self._prepare(encoded.new_zeros(*size, encoded.size(2)), terms)

        known = self.sizes.get(size, prepare)
        if known and (masks is not None or phrases is not None):
            terms = _Terms(known, 0 if masks is None else table_size(len(masks.table)), phrases)
            known = self.sizes.get((*size, terms.kinds, phrases.size if phrases else 0), lambda: prepare(terms))
        return known if FAST_PATHS.allows(FastPath.SEARCH_GRAPHS) else None

    def _prepare(self, largest: Tensor, terms: "_Terms | None") -> "_Prepared":
        """Prepare a size by the strongest form that finds what look-ahead in plain operations finds."""
        phrases = terms.phrases if terms else None
        kind = bool(terms and terms.kinds), phrases is not None
        search_both = partial(self._search_both, largest, phrases)
        if self.fused and phrases is None and FAST_PATHS.allows(FastPath.SEARCH):
            with FAST_PATHS.trying(FastPath.SEARCH, _says_nothing_of_kernels):
                from models.search.fused_look_ahead import FusedLookAhead  # only a GPU has Triton

                prepared = self._prepare_with(FusedLookAhead, largest, terms)
                if self._agreement.agrees(FastPath.SEARCH, prepared, search_both, kind):
                    return prepared
        return self._agreement.prepared(lambda: self._prepare_with(self._form, largest, terms), search_both, kind)

    def _search_both(
        self, largest: Tensor, phrases: BatchPhrases | None, prepared: "_Prepared"
    ) -> tuple[FetchedResult, FetchedResult]:
        """Search a batch of noise by a size's graph, and by look-ahead in plain operations."""
        rows = min(COMPARED_ROWS, largest.size(0))
        if phrases:
            phrases = phrases.first(rows)
            rows = len(phrases.start)
        encoded, lengths = noise(largest, rows, min(COMPARED_FRAMES, largest.size(1)))
        masks = None
        if prepared.masks:  # of the second kind, half of the labels may be written
            table = torch.zeros_like(prepared.masks.table[:2])
            table[1, : self._joint.blank : 2] = -torch.inf
            masks = LabelMasks(table, torch.arange(rows, device=largest.device) % 2)
        batch = encoded, lengths, masks, phrases
        return prepared.search(*batch), self._plain(*batch)

    def _prepare_with(self, form: NewForm, largest: Tensor, terms: "_Terms | None") -> "_Prepared":
        parts = self._predictor, self._joint, self._max_symbols
        window = window_of(largest.size(0)) if self._window is None else self._window
        return _Prepared(
            form, largest, *parts, window=window, side_stream=self._side_stream, loops=self._loops, terms=terms
        )


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a size with masks or phrases has: the same without, whose state it shares, the kinds of rows, phrases."""

    plain: "_Prepared"
    kinds: int
    phrases: BatchPhrases | None


class _Prepared:
    """State and graph for batches with at most the rows and frames of ``largest``.

    Attributes:
        projected: encoder frames, projected for the joint, [rows, frames, joint width].
        state: the state of the search.
        masks: the labels that its rows may write, at addresses that stay; None if they may write all.
        phrases: the phrases of its rows, likewise; None if they have none.
        loops: whether the device repeats steps by itself.
    """

    def __init__(
        self,
        form: NewForm,
        largest: Tensor,
        predictor: AnyPredictor,
        joint: Joint,
        max_symbols: int,
        *,
        window: int,
        side_stream: SideStream,
        loops: bool,
        terms: _Terms | None,
    ) -> None:
        self._side_stream = side_stream
        self._joint = joint
        side_stream.join()  # the batch before may still use what is shared
        self.projected: Tensor
        self.state: TransducerState
        if terms:
            self.projected, self.state = terms.plain.projected, terms.plain.state
        else:
            self.projected = joint.encoder_projection(largest)
            lengths = torch.zeros(largest.size(0), dtype=torch.int64, device=largest.device)
            self.state = TransducerState(lengths, largest.size(1), predictor, joint, max_symbols)
        self.masks: LabelMasks | None = None
        if terms and terms.kinds:
            self.masks = LabelMasks.of_all(largest.size(0), terms.kinds, joint.blank + 1, largest.device)
        self.phrases = terms.phrases.lasting(largest.size(0)) if terms and terms.phrases else None
        phrases = {"phrases": self.phrases} if self.phrases else {}
        self._form = form(self.projected, predictor, joint, window, self.masks, **phrases)
        self._going = torch.zeros(1, dtype=torch.bool, device=largest.device)
        self._driver = GraphDriver(self._advance, self._going, side_stream, loops=loops)
        self.loops = self._driver.loops

    def search(
        self, encoded: Tensor, lengths: Tensor, masks: LabelMasks | None, phrases: BatchPhrases | None
    ) -> FetchedResult:
        rows, frames = encoded.shape[:2]
        projected = self._joint.encoder_projection(encoded)
        self._side_stream.join()  # the batch before has the state until its tokens are copied
        self.projected[:rows, :frames] = projected
        self.state.lengths.zero_()
        self.state.lengths[:rows] = lengths
        if self.masks and masks:
            self.masks.replace(masks)
        if self.phrases and phrases:
            self.phrases.replace(phrases)
        if isinstance(self._form, LookAhead):
            self._form.restart()
        self.state.restart()
        with self._side_stream.entered():
            steps = self._driver.until_done(most=self.state.capacity + 1)
            return self.state.result(columns=min(steps, self.state.capacity)).first(rows).fetched()

    def _advance(self, steps: int) -> None:
        for _ in range(steps // 2):
            self._form.two_steps(self.state)
        self._going.copy_(self.state.active.any())


def _says_nothing_of_kernels(error: Exception) -> bool:
    return is_out_of_memory(error) or says_it_cannot_capture(error)
