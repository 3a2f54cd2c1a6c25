"""RNN-T and TDT are decoded here.

Both forms of the search find the same tokens. A CPU has ``flat.py``, which computes fewer products; a GPU has
``look_ahead.py``, which needs fewer launches, driven by graphs (``graphed_look_ahead.py``). What a frame's scores
decide is in ``decision.py``, and what a row remembers from step to step in ``state.py``.
"""

import torch
from torch import Tensor

from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from models.search.flat import flat
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.label_masks import LabelMasks
from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases
from models.search.result import ChosenSearch, FetchedResult


def transducer_search(
    predictor: AnyPredictor,
    joint: Joint,
    max_symbols: int,
    device: torch.device,
    language_model: LanguageModel | None = None,
) -> ChosenSearch:
    """Return the search of a transducer on a device; ``max_symbols`` is the most labels of a frame."""
    if device.type == "cpu":

        def search(
            encoded: Tensor, lengths: Tensor, masks: LabelMasks | None, phrases: BatchPhrases | None
        ) -> FetchedResult:
            return flat(encoded, lengths, predictor, joint, max_symbols, masks, phrases, language_model).fetched()

        return ChosenSearch(search)
    graphed = GraphedLookAhead(predictor, joint, max_symbols, language_model=language_model)
    return ChosenSearch(graphed.search, graphed.sizes)
