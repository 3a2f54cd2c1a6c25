"""The labels that a text in a language may have: those without letters of scripts that the language does not use."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from models.search.label_masks import LabelMasks
from models.text.tokenizers import Vocabulary
from transcripts.alphabets import allowed_scripts, scripts_of_text
from transcripts.prompt import Prompt

# Sets of scripts whose masks are kept on the device; a model of European languages has three scripts, so seven sets.
_KEPT = 64


class ScriptMasks:
    """Makes the masks of batches.

    Attributes:
        scripts: the scripts of the vocabulary's letters.
    """

    def __init__(self, vocabulary: Vocabulary, device: torch.device) -> None:
        """Find the script of each label; bytes that are no character have none, and are never masked."""
        self._of_labels = [scripts_of_text(text.decode(errors="ignore")) for text in vocabulary.token_bytes]
        self.scripts = frozenset().union(*self._of_labels)
        self._device = device
        self._row = lru_cache(maxsize=_KEPT)(self._new_row)

    def of_batch(self, prompts: Sequence[Prompt]) -> LabelMasks | None:
        """Return the labels that each utterance may write; None if all may write all."""
        allowed = [self._allowed(prompt) for prompt in prompts]
        distinct = [self.scripts, *sorted({one for one in allowed if one != self.scripts}, key=sorted)]
        if len(distinct) == 1:
            return None
        table = torch.stack([self._row(one) for one in distinct])
        is_gpu = self._device.type == "cuda"
        kinds = torch.tensor([distinct.index(one) for one in allowed], pin_memory=is_gpu)
        return LabelMasks(table, kinds.to(self._device, non_blocking=True))

    def _allowed(self, prompt: Prompt) -> frozenset[str]:
        return allowed_scripts(self.scripts, (prompt.language,) if prompt.language else prompt.written_languages)

    def _new_row(self, allowed: frozenset[str]) -> Tensor:
        masked = [not scripts <= allowed for scripts in self._of_labels]
        row = torch.zeros(len(masked) + 1)  # the blank comes last
        row[:-1][torch.tensor(masked)] = -torch.inf
        return row.to(self._device)
