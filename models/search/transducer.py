"""RNN-T and TDT are decoded here.

Both forms of the search find the same tokens. A CPU has ``flat.py``, which computes fewer products; a GPU has
``look_ahead.py``, which needs fewer launches, driven by graphs (``graphed_look_ahead.py``). What a row remembers from
step to step is in ``state.py``.
"""

import torch

from models.graphs.sizes import Sizes
from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from models.search.flat import flat
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.language_model import LanguageModel
from models.search.result import ChosenSearch


def transducer_search(
    predictor: AnyPredictor,
    joint: Joint,
    max_symbols: int,
    device: torch.device,
    language_model: LanguageModel | None = None,
) -> ChosenSearch:
    """Return the search of a transducer on a device; ``max_symbols`` is the most labels of a frame."""
    parts = predictor, joint, max_symbols
    if device.type == "cpu":
        return ChosenSearch(
            lambda encoded, lengths, masks, phrases: flat(
                encoded, lengths, *parts, masks, phrases, language_model
            ).fetched(),
            Sizes(device),
        )
    graphed = GraphedLookAhead(*parts, language_model=language_model)
    return ChosenSearch(graphed.search, graphed.sizes)
