"""CTC is decoded here: greedily (``ctc.py``), mostly within the encoder's pass, or with a language model.

The beam (``ctc_beam.py``) is the same on all devices; a GPU runs it by graphs (``graphed_ctc_beam.py``).
"""

from threading import Lock

import torch
from torch import Tensor

from models.graphs.sizes import Sizes
from models.heads.ctc import CTCHead
from models.search.ctc import ctc_greedy
from models.search.ctc_beam import ctc_beam
from models.search.graphed_ctc_beam import GraphedCtcBeam
from models.search.label_masks import LabelMasks
from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases
from models.search.result import ChosenSearch, FetchedResult, Search


def greedy_ctc(head: CTCHead) -> Search:
    """Return greedy search of a CTC head, for what the encoder's pass does not do."""
    return lambda encoded, lengths, masks, phrases: ctc_greedy(
        _logits(head, encoded, masks), lengths, head.blank, phrases
    ).fetched()


def ctc_search(head: CTCHead, language_model: LanguageModel, device: torch.device) -> ChosenSearch:
    """Return the search of a CTC head on a device."""
    if device.type != "cpu":
        beam = GraphedCtcBeam(head.blank, language_model, device)
        return ChosenSearch(
            lambda encoded, lengths, masks, phrases: beam.search(_logits(head, encoded, masks), lengths, phrases),
            beam.sizes,
        )
    # One thread searches while others encode: two that search at the same time wait for the interpreter at each of
    # thousands of small operations.
    one_at_a_time = Lock()

    def search(
        encoded: Tensor, lengths: Tensor, masks: LabelMasks | None, phrases: BatchPhrases | None
    ) -> FetchedResult:
        logits = _logits(head, encoded, masks)
        with one_at_a_time:
            return ctc_beam(logits, lengths, head.blank, language_model, phrases=phrases).fetched()

    return ChosenSearch(search, Sizes(device))


def _logits(head: CTCHead, encoded: Tensor, masks: LabelMasks | None) -> Tensor:
    """Return logits [batch, frames, labels + 1] for frames [batch, frames, width]; -inf where a row is masked."""
    logits: Tensor = head(encoded)
    return logits if masks is None else masks.added(logits)
