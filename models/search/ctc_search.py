"""CTC is decoded here: greedily (``ctc.py``), mostly within the encoder's pass, or with a language model.

The beam (``ctc_beam.py``) is the same on all devices; a GPU runs it by graphs (``graphed_ctc_beam.py``).
"""

from threading import Lock

import torch
from torch import Tensor

from models.heads.ctc import CTCHead
from models.search.ctc import ctc_greedy
from models.search.ctc_beam import ctc_beam
from models.search.graphed_ctc_beam import GraphedCtcBeam
from models.search.language_model import LanguageModel
from models.search.result import ChosenSearch, FetchedResult


def greedy_ctc(head: CTCHead) -> ChosenSearch:
    """Return greedy search of a CTC head over frames that were changed after the encoder's pass."""
    return ChosenSearch(lambda encoded, lengths: ctc_greedy(head(encoded), lengths, head.blank).fetched())


def ctc_search(head: CTCHead, language_model: LanguageModel, device: torch.device) -> ChosenSearch:
    """Return the search of a CTC head on a device."""
    if device.type != "cpu":
        beam = GraphedCtcBeam(head.blank, language_model, device)
        return ChosenSearch(lambda encoded, lengths: beam.search(head(encoded), lengths), beam.sizes)
    # One thread searches while others encode: two that search at the same time wait for the interpreter at each of
    # thousands of small operations.
    one_at_a_time = Lock()

    def search(encoded: Tensor, lengths: Tensor) -> FetchedResult:
        logits = head(encoded)
        with one_at_a_time:
            return ctc_beam(logits, lengths, head.blank, language_model).fetched()

    return ChosenSearch(search)
