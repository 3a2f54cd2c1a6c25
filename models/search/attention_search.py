"""The search of an attention decoder over batches, on a GPU in CUDA graphs of a few sizes (drivers/graph.py).

Graphs run in a side stream, beside the encoding of the next batch.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.device.fast_paths import FAST_PATHS, FastPath
from models.graphs.arena import Layout
from models.graphs.side_stream import SideStream
from models.graphs.sizes import Sizes, frame_size, row_sizes
from models.heads.attention_decoder import AttentionDecoder, Cache, Memory
from models.search.agreement import COMPARED_ROWS, Agreement, noise
from models.search.attention import GreedyWriting, LengthBound
from models.search.attention_beam import BeamWriting
from models.search.drivers.eager import repeat
from models.search.drivers.graph import GraphDriver
from models.search.phrases import BatchPhrases
from models.search.result import FetchedResult

_COMPARED_TOKENS = 8  # of a batch that is compared; with more, roundings would add up


class AttentionSearch:
    """Searches batches; a row's result does not depend on the rest of its batch."""

    def __init__(self, decoder: AttentionDecoder, end: int, *, graphed: bool) -> None:
        """Prepare to search.

        Args:
            decoder: the decoder; its configuration has the beam width.
            end: the token that ends a text; not part of a result.
            graphed: whether to capture graphs, each at the first batch of its size; sizes share their memory.
        """
        self._decoder = decoder
        self._config = decoder.config
        self._cache_count = 1 if decoder.config.beam == 1 else BeamWriting.CACHES
        self._end = end
        self._graphed = graphed
        device = decoder.embedding.weight.device
        self._side_stream = SideStream(device)
        self._agreement: Agreement[_Prepared] = Agreement(device, decoder.embedding.weight.dtype)
        self.sizes: Sizes[_Prepared] = Sizes(device)

    @torch.no_grad()
    def search(
        self,
        encoded: Tensor,
        lengths: Tensor,
        prompts: Tensor,
        bound: LengthBound,
        phrases: BatchPhrases | None = None,
    ) -> FetchedResult:
        """Search a batch; the host drives one with phrases.

        Args:
            encoded: [batch, frames, encoder width], in the dtype of the decoder; choices are made in float32. Later
                work of the device may overwrite it.
            lengths: valid frames of each row, [batch]; may be overwritten too.
            prompts: [batch, prompt], int64, tokens that come before the text.
            bound: the longest sequences.
            phrases: the phrases of the rows.

        Returns:
            Tokens after the prompt, whose frames are not known.
        """
        prepared = self._prepared(encoded, prompts, bound.longest) if phrases is None else None
        if prepared is not None:
            padded = pad(encoded, (0, 0, 0, frame_size(encoded.size(1)) - encoded.size(1)))
            return prepared.search(self._memory(padded, lengths), prompts, bound.limits)
        return self._driven_by_host(encoded, lengths, prompts, bound, phrases)

    def _driven_by_host(
        self, encoded: Tensor, lengths: Tensor, prompts: Tensor, bound: LengthBound, phrases: BatchPhrases | None
    ) -> FetchedResult:
        writing = self._writing(self._memory(encoded, lengths), prompts, bound.longest)
        writing.restart(prompts, bound.limits, phrases)
        return writing.result(columns=min(repeat(GreedyWriting.step, writing), writing.capacity)).fetched()

    def _prepared(self, encoded: Tensor, prompts: Tensor, longest: int) -> "_Prepared | None":
        """Return the state and graph for batches of this size; None if the host drives the search."""
        allowed = self._graphed and FAST_PATHS.allows(FastPath.SEARCH_GRAPHS)
        if not allowed or not prompts.size(0) or longest <= prompts.size(1):
            return None
        rows, frames = row_sizes(prompts.size(0))[0], frame_size(encoded.size(1))
        longest = min(self._config.positions, frame_size(longest))
        size = rows, frames, prompts.size(1), longest
        known = self.sizes.known(size)
        if known is not None:
            return known
        state = self._state(size, encoded.dtype)
        if not self.sizes.has_room(size, state):
            return None

        def prepare() -> _Prepared:
            lasting = prompts.new_zeros(rows, prompts.size(1))
            tensors, layers = self.sizes.arena.tensors(state), self._config.layers
            of_texts, of_frames = tensors[: -2 * layers], tensors[-2 * layers :]
            caches = [Cache(*pair) for pair in zip(of_texts[::2], of_texts[1::2], strict=True)]
            lengths = lasting.new_zeros(rows * self._config.beam)
            bias = encoded.new_zeros(len(lengths), 1, 1, frames)
            memory = Memory(tuple(of_frames[:layers]), tuple(of_frames[layers:]), bias, lengths)
            writing = self._writing(memory, lasting, longest, caches)
            return _Prepared(writing, memory, caches, lasting, self._side_stream)

        search_both = partial(self._search_both, encoded, prompts.size(1), longest)
        known = self.sizes.get(size, lambda: self._agreement.prepared(prepare, search_both))
        return known if FAST_PATHS.allows(FastPath.SEARCH_GRAPHS) else None

    def _search_both(
        self, encoded: Tensor, prompt: int, longest: int, prepared: "_Prepared"
    ) -> tuple[FetchedResult, FetchedResult]:
        """Search a batch of noise by a size's graph, and as the host drives it.

        Prompts are of any tokens: after the model's own, noise would have no text, and nothing to compare.
        """
        rows = min(COMPARED_ROWS, encoded.size(0))
        frames, lengths = noise(encoded, rows, frame_size(encoded.size(1)))
        frames = 3 * frames
        prompts = torch.arange(rows * prompt, device=encoded.device).view(rows, prompt) % self._decoder.vocabulary_size
        most = min(longest, prompt + _COMPARED_TOKENS)
        bound = LengthBound(torch.full_like(lengths, most), most)
        found = prepared.search(self._memory(frames, lengths), prompts, bound.limits)
        return found, self._driven_by_host(frames, lengths, prompts, bound, None)

    def _state(self, size: tuple[int, int, int, int], dtype: torch.dtype) -> list[Layout]:
        """Return the keys and values of a size: those of its texts, and those of its encoder frames by layer."""
        rows, frames, _, longest = size
        layers, heads, share = self._config.layers, self._config.heads, self._config.width // self._config.heads
        of_text = Layout((layers, rows * self._config.beam, heads, longest, share), dtype)
        of_frames = Layout((rows * self._config.beam, heads, frames, share), dtype)
        return [of_text] * (2 * self._cache_count) + [of_frames] * (2 * layers)

    def _memory(self, encoded: Tensor, lengths: Tensor) -> Memory:
        return self._decoder.memory(encoded, lengths).repeated(self._config.beam)

    def _writing(
        self, memory: Memory, prompts: Tensor, longest: int, caches: Sequence[Cache] | None = None
    ) -> GreedyWriting:
        beam, penalty = self._config.beam, self._config.length_penalty
        parts = self._decoder, memory, prompts, longest, self._end
        if beam == 1:
            return GreedyWriting(*parts, caches=caches)
        return BeamWriting(*parts, texts=beam, length_penalty=penalty, caches=caches)


class _Prepared:
    """State and graph for batches up to a number of rows and frames.

    Attributes:
        loops: whether the device repeats steps by itself.
    """

    def __init__(
        self, writing: GreedyWriting, memory: Memory, caches: Sequence[Cache], prompts: Tensor, side_stream: SideStream
    ) -> None:
        self._side_stream = side_stream
        self._writing = writing
        self._memory = memory
        self._caches = caches
        self._prompts = prompts
        self._limits = torch.zeros_like(prompts[:, 0])
        self._going = torch.zeros(1, dtype=torch.bool, device=prompts.device)
        self._driver = GraphDriver(self._advance, self._going, side_stream)
        self.loops = self._driver.loops

    def search(self, memory: Memory, prompts: Tensor, limits: Tensor) -> FetchedResult:
        rows = prompts.size(0)
        self._side_stream.join()  # the state is the previous batch's until its tokens are copied
        self._memory.replace_first(memory)
        for cache in self._caches:
            cache.clear()
        self._prompts[:rows] = prompts
        self._limits.zero_()  # rows without an utterance are done at once
        self._limits[:rows] = limits
        self._writing.restart(self._prompts, self._limits)
        with self._side_stream.entered():
            steps = self._driver.until_done(most=self._writing.capacity + 1)
            return self._writing.result(columns=min(steps, self._writing.capacity)).first(rows).fetched()

    def _advance(self, steps: int) -> None:
        for _ in range(steps):
            self._writing.step()
        self._going.copy_(self._writing.active.any())
