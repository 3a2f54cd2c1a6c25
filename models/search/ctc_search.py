"""CTC with a language model is decoded here; greedy CTC (``ctc.py``) needs no search of its own.

The beam (``ctc_beam.py``) is the same on all devices; a GPU runs it by graphs (``graphed_ctc_beam.py``).
"""

from threading import Lock

import torch
from torch import Tensor

from models.heads.ctc import CTCHead
from models.search.ctc_beam import ctc_beam
from models.search.graphed_ctc_beam import GraphedCtcBeam
from models.search.language_model import LanguageModel
from models.search.result import ChosenSearch, FetchedResult


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
