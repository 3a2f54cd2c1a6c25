"""Whether a search in graphs finds what plain operations find, in the first batch of its kind."""

import torch

from models.device.fast_paths import FAST_PATHS, FastPath
from models.search.result import FetchedResult

# The size of that batch. In half precision, ties and the order of sums may change a row.
COMPARED_ROWS, COMPARED_FRAMES = 16, 64
_EQUAL_SHARE = 0.9


def judge_rows(path: FastPath, found: FetchedResult, plain: FetchedResult, dtype: torch.dtype) -> bool:
    """Return whether as many rows have the same tokens as must have in a dtype; the path is barred if not."""
    pairs = list(zip(found.rows(), plain.rows(), strict=True))
    equal = sum(one.tokens == other.tokens for one, other in pairs)
    enough = _EQUAL_SHARE * len(pairs) if dtype in (torch.float16, torch.bfloat16) else len(pairs)
    why = f"{equal} of {len(pairs)} rows have the tokens of plain operations"
    return FAST_PATHS.judge(path, why, agrees=equal >= enough)
