"""Counting and smoothing n-grams of tokens for models/search/language_model.py.

Interpolated Kneser-Ney smoothing (Chen and Goodman, 1999) with one discount for each order: an n-gram below the highest
order counts once for each different token before it. Rare n-grams are left out, and their probability goes to the
back-off of their context.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from models.search.language_model import KIND, MAX_ORDER, vocabulary_digest
from training.errors import TrainingError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Log probability of the impossible; the file is in half precision.
_NEVER = -100.0


@dataclass(frozen=True, slots=True)
class _Counted:
    """N-grams of an order as numbers, ascending, and the count of each."""

    codes: Integers
    seen: Integers


def write_language_model(
    sentences: Iterable[Sequence[int]],
    pieces: Sequence[str],
    path: Path,
    *,
    least: Sequence[int],
    weight: float,
    bonus: float,
) -> int:
    """Write the language model of sentences.

    Args:
        sentences: labels of each sentence.
        pieces: the vocabulary.
        path: the file.
        least: smallest count of n-grams that are kept, for each order from two up; must not decrease.
        weight: factor of its log probabilities in a search.
        bonus: added to a search's score for each token.

    Returns:
        The number of n-grams.

    Raises:
        TrainingError: if there are no sentences, the n-grams are too long in themselves or for the size of the
            vocabulary, or ``least`` decreases.
        OSError: if the file cannot be written.
    """
    labels = len(pieces)
    width, highest = labels + 2, len(least) + 1
    if highest > MAX_ORDER:
        raise TrainingError(f"n-grams of {highest} are too long; they may have {MAX_ORDER} tokens")
    if width**highest >= 2**63 or width > 2**16:
        raise TrainingError(f"n-grams of {highest} out of {labels} labels are too many to be counted")
    if list(least) != sorted(least):
        raise TrainingError("a longer n-gram must have been seen at least as often as a shorter one to be kept")
    text, position = _joined(sentences, labels)
    if len(text) == 0:
        raise TrainingError("there are no sentences to count")
    counted = [_count(text, position, order, width) for order in range(1, highest + 1)]
    kept = [np.arange(width), *(one.codes[one.seen >= most] for one, most in zip(counted[1:], least, strict=True))]
    tensors: dict[str, NDArray[np.generic]] = {}
    probabilities = _unigrams(counted, width)
    tensors["log_probabilities.1"] = _logarithms(probabilities)
    for order in range(2, highest + 1):
        probabilities, left = _smoothed(counted, order, kept, probabilities, width)
        tensors[f"log_probabilities.{order}"] = _logarithms(probabilities)
        tensors[f"backoffs.{order - 1}"] = _logarithms(left)
    for order, codes in enumerate(kept, start=1):
        tensors[f"tokens.{order}"] = (codes % width).astype(np.uint16)
        if order < highest:
            contexts = np.searchsorted(codes, kept[order] // width)
            tensors[f"children.{order}"] = np.bincount(contexts, minlength=len(codes)).astype(np.uint16)
    metadata = {"kind": KIND, "vocabulary": vocabulary_digest(pieces), "weight": str(weight), "bonus": str(bonus)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(save(tensors, metadata))
    return sum(map(len, kept))


def _joined(sentences: Iterable[Sequence[int]], labels: int) -> tuple[Integers, Integers]:
    """Return all sentences, each with start and end, and the position of each token in its sentence."""
    framed = [np.asarray([labels, *sentence, labels + 1], dtype=np.int64) for sentence in sentences]
    if not framed:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(framed), np.concatenate([np.arange(len(sentence)) for sentence in framed])


def _count(text: Integers, position: Integers, order: int, width: int) -> _Counted:
    """Count the n-grams within sentences that end with a label or with the end."""
    starts = max(0, len(text) - order + 1)
    codes = np.zeros(starts, np.int64)
    for offset in range(order):
        codes = codes * width + text[offset : starts + offset]
    inside = position[order - 1 :] >= max(1, order - 1)
    return _Counted(*np.unique(codes[inside], return_counts=True))


def _predecessors(counted: Sequence[_Counted], order: int, width: int) -> Integers:
    """Return the number of different tokens before each n-gram.

    For n-grams at the start of a sentence and for those of the highest order it is their count.
    """
    this = counted[order - 1]
    if order == len(counted):
        return this.seen
    codes, different = np.unique(counted[order].codes % width**order, return_counts=True)
    counts = np.zeros_like(this.seen)
    counts[np.searchsorted(this.codes, codes)] = different
    return np.where(counts == 0, this.seen, counts)


def _unigrams(counted: Sequence[_Counted], width: int) -> Floats:
    """Return the probability of each token, above 0 except for the start, which is never predicted."""
    counts = np.full(width, 0.5)
    counts[counted[0].codes] += _predecessors(counted, 1, width)
    counts[width - 2] = 0
    probabilities: Floats = counts / counts.sum()
    return probabilities


def _smoothed(
    counted: Sequence[_Counted], order: int, kept: Sequence[Integers], lower: Floats, width: int
) -> tuple[Floats, Floats]:
    """Return the probabilities of the n-grams that are kept, and the back-off weight of each context."""
    this = counted[order - 1]
    counts = _predecessors(counted, order, width)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    # Where no n-gram is seen just once, the formula gives 0, which leaves nothing for n-grams that are not seen.
    discount = once / (once + 2 * twice) if once else 0.5
    contexts, context = np.unique(this.codes // width, return_inverse=True)
    own = (counts - discount).clip(min=0) / np.bincount(context, counts)[context]
    is_kept = np.isin(this.codes, kept[order - 1], assume_unique=True)
    left = 1 - np.bincount(context[is_kept], own[is_kept], minlength=len(contexts))
    suffix = np.searchsorted(kept[order - 2], this.codes[is_kept] % width ** (order - 1))
    probabilities = own[is_kept] + left[context[is_kept]] * lower[suffix]
    backoffs = np.ones(len(kept[order - 2]))
    known = np.isin(contexts, kept[order - 2], assume_unique=True)
    backoffs[np.searchsorted(kept[order - 2], contexts[known])] = left[known].clip(0, 1)
    return probabilities, backoffs


def _logarithms(values: Floats) -> NDArray[np.float16]:
    with np.errstate(divide="ignore"):
        return np.log(values).clip(_NEVER, 0).astype(np.float16)
