"""What phrases and a language model prefer among the labels of a choice, where no beam keeps several texts.

They choose among labels only: a blank stays a blank, and where there is a label, one stays.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases

# Labels of a choice that may be preferred to the best: the best few. Any other is far less likely.
CANDIDATES = 8
# By this a gain of a phrase (phrases.py) is multiplied before it is added to a logit or a log probability. A beam of
# CTC has a scale of its own (docs/measured/2026-11.md).
PHRASE_SCALE = 1.0


class Term(Protocol):
    """What adds to the scores of labels: phrases, or a language model."""

    @property
    def has_text(self) -> Tensor:
        """Whether it says anything of each label, bool."""

    def score(self, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each label gains in its state, and the state after it."""


def prefer(scores: Tensor, best: Tensor, terms: Sequence[tuple[Term, Tensor, float]]) -> tuple[Tensor, list[Tensor]]:
    """Return the label that each row prefers among the best few, [rows], and the states of the terms after it.

    One of which a term says nothing, such as one without text, is chosen if it is the best label, and not otherwise.

    Args:
        scores: of labels, without the blank, [rows, labels], float32.
        best: the best label of each row, [rows]; it gives way only to one that is better with what it gains.
        terms: each with the states of the rows, [rows], and the factor of its gains.
    """
    few = scores.topk(min(CANDIDATES, scores.size(1)), dim=1).indices
    labels = torch.cat([best[:, None], few], dim=1)
    total = scores.gather(1, labels)
    states = []
    for term, before, scale in terms:
        gains, after = term.score(before[:, None], labels)
        is_fixed = ~term.has_text[best[:, None]] | ~term.has_text[labels]
        total = (total + scale * gains).masked_fill(is_fixed, -torch.inf)
        states.append(after)
    chosen = total.argmax(dim=1, keepdim=True)  # the first, which is the best label, if all are minus infinity
    return labels.gather(1, chosen).squeeze(1), [after.gather(1, chosen).squeeze(1) for after in states]


class Preference:
    """What the rows of a transducer's batch prefer, and the states of their texts, which a choice advances."""

    def __init__(self, rows: int, phrases: BatchPhrases | None, language_model: LanguageModel | None) -> None:
        """Begin the texts of ``rows`` rows; without phrases and a language model nothing is preferred."""
        self._terms: list[tuple[Term, Tensor, float]] = []
        self._starts = []
        if phrases is not None:
            self._starts.append(phrases.start)
            self._terms.append((phrases, phrases.start.clone(), PHRASE_SCALE))
        if language_model is not None:
            start = torch.full((rows,), language_model.start, device=language_model.keys.device)
            self._starts.append(start)
            self._terms.append((language_model, start.clone(), language_model.weight))

    def __bool__(self) -> bool:
        """Whether anything is preferred."""
        return bool(self._terms)

    def restart(self) -> None:
        """Begin new texts, of phrases that may be others at the same addresses."""
        for (_, states, _), start in zip(self._terms, self._starts, strict=True):
            states.copy_(start)

    def choose(self, scores: Tensor, best: Tensor, at: Tensor | slice, found: Tensor) -> Tensor:
        """Return the labels that some rows prefer, and add them to their texts.

        Args:
            scores: of labels, without the blank, [some rows, labels], float32.
            best: the best label of each, [some rows].
            at: which rows these are.
            found: whether each has a label, bool [some rows]; where not, any label is returned.
        """
        terms = [(term, states[at], scale) for term, states, scale in self._terms]
        labels, afters = prefer(scores, best, terms)
        for (_, states, _), (_, before, _), after in zip(self._terms, terms, afters, strict=True):
            states[at] = after.where(found, before)
        return labels
