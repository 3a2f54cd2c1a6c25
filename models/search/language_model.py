"""An n-gram language model over the tokens of a vocabulary, in tensors, for many contexts at once.

It is a back-off model (Katz, 1987): an n-gram that it holds has its own probability; any other has the probability
after the next shorter context, times the back-off weight of the longer one. `steno train language-model` makes the file
from sentences (training/language_model.py).

The file is in safetensors format. Each order N has ``tokens.N`` and ``log_probabilities.N``, sorted by context and then
by last token. All but the highest also have ``backoffs.N`` and ``children.N``, the number of n-grams of the next order
that begin with each.
"""

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.errors import MissingCheckpointError, UnreadableCheckpointError, UnsupportedValueError

KIND = "steno n-grams 1"
MAX_ORDER = 8


@dataclass(frozen=True, slots=True)
class Ngrams:
    """The n-grams of one order, sorted by context and then by token.

    Attributes:
        tokens: the last token of each, int64.
        log_probabilities: natural logarithm of its probability after its context, float32.
        backoffs: logarithm of its back-off weight as a context, float32; None for the highest order.
        children: n-grams of the next order that begin with it, int64; None for the highest order.
    """

    tokens: Tensor
    log_probabilities: Tensor
    backoffs: Tensor | None
    children: Tensor | None


class LanguageModel:
    """Log probabilities of tokens after a context.

    A state is the number of a context. Besides the labels there are two tokens: start and end of an utterance.

    Attributes:
        labels: number of labels of its vocabulary.
        weight: factor of its log probabilities in a search.
        bonus: added to a search's score for each token, so that short texts have no advantage.
        start: the state at the start of an utterance.
        ngrams: number of n-grams.
        nbytes: their memory on the device.
    """

    def __init__(self, orders: Sequence[Ngrams], labels: int, weight: float, bonus: float) -> None:
        """Link the contexts, on the device of the n-grams.

        Raises:
            ValueError: if the n-grams are not sorted, or lack unigrams, contexts or suffixes.
        """
        self.labels = labels
        self.weight = weight
        self.bonus = bonus
        self._width = labels + 2
        self.ngrams = sum(len(ngrams.tokens) for ngrams in orders)
        self._order = len(orders)
        parents = _parents(orders)
        device = parents.device
        # The root, which is the empty context, has number 0; n-grams follow, order by order.
        tokens = torch.cat([ngrams.tokens for ngrams in orders])
        self._keys = parents * self._width + tokens
        if not bool((self._keys[1:] > self._keys[:-1]).all()):
            raise ValueError("n-grams that are not sorted")
        if not torch.equal(orders[0].tokens, torch.arange(self._width, device=device)) or bool(
            (tokens >= self._width).any()
        ):
            raise ValueError(f"unigrams that are not those of {labels} labels")
        zero = torch.zeros(1, device=device)
        self._log_probabilities = torch.cat([zero, *(ngrams.log_probabilities for ngrams in orders)])
        self._backoffs = torch.cat(
            [
                zero,
                *(ngrams.backoffs for ngrams in orders if ngrams.backoffs is not None),
                torch.zeros_like(orders[-1].log_probabilities),
            ]
        )
        self._suffixes = self._suffix_links(orders, parents, tokens)
        # The context after an n-gram of the highest order is the n-gram without its first token.
        self._next = torch.arange(len(self._suffixes), device=device)
        highest = len(self._next) - len(orders[-1].tokens)
        self._next[highest:] = self._suffixes[highest:]
        # The first number of each order, and the one after the last.
        sizes = torch.tensor([1, *(len(ngrams.tokens) for ngrams in orders)], device=device)
        self._firsts = sizes.cumsum(dim=0)
        self.start = int(self._next[labels + 1])
        self._end = labels + 1
        tensors = (self._keys, self._log_probabilities, self._backoffs, self._suffixes, self._next)
        self.nbytes = sum(tensor.nbytes for tensor in tensors)

    def to(self, device: torch.device) -> "LanguageModel":
        """Move the model to a device, and return it."""
        self._keys, self._suffixes, self._next, self._firsts = (
            tensor.to(device) for tensor in (self._keys, self._suffixes, self._next, self._firsts)
        )
        self._log_probabilities, self._backoffs = self._log_probabilities.to(device), self._backoffs.to(device)
        return self

    def score(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log probability of each token after its context, and the longest n-gram that ends with it.

        Args:
            states: int64, any shape.
            tokens: labels, int64; its shape broadcasts with that of ``states``.

        Returns:
            float32 and int64, in the broadcast shape. ``after`` gives the contexts after such n-grams.
        """
        contexts = [states]  # from long to short, without the empty one, which any token follows
        while len(contexts) < self._order - 1:
            contexts.append(self._suffixes[contexts[-1]])
        tried = torch.stack(contexts)
        found, at = self._find(tried, tokens)
        # The longest counts: its number is above those of shorter ones. The unigram is always there.
        ngram = torch.where(found, at, tokens).amax(dim=0) + 1
        # A back-off weight counts unless the n-gram is of that context or of a longer one.
        least = self._firsts[torch.bucketize(tried, self._firsts, right=True)]
        penalty = (self._backoffs[tried] * (ngram < least)).sum(dim=0)
        return penalty + self._log_probabilities[ngram], ngram

    def after(self, ngrams: Tensor) -> Tensor:
        """Return the contexts after n-grams, in their shape."""
        return self._next[ngrams]

    def score_end(self, states: Tensor) -> Tensor:
        """Return the log probability of the end of the utterance, in the shape of ``states``."""
        return self.score(states, torch.full_like(states, self._end))[0]

    def _find(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether the model has the n-gram of context and token, and its number less 1."""
        keys = states * self._width + tokens
        at = torch.searchsorted(self._keys, keys).clamp_(max=len(self._keys) - 1)
        return self._keys[at] == keys, at

    def _suffix_links(self, orders: Sequence[Ngrams], parents: Tensor, tokens: Tensor) -> Tensor:
        """Return the number of each n-gram without its first token."""
        suffixes = tokens.new_zeros(len(tokens) + 1)
        begin = len(orders[0].tokens)
        for ngrams in orders[1:]:
            end = begin + len(ngrams.tokens)
            found, at = self._find(suffixes[parents[begin:end]], tokens[begin:end])
            if not bool(found.all()):
                raise ValueError("an n-gram without its suffix")
            suffixes[begin + 1 : end + 1] = at + 1
            begin = end
        return suffixes


def _parents(orders: Sequence[Ngrams]) -> Tensor:
    """Return the number of each n-gram without its last token."""
    parents = [torch.zeros_like(orders[0].tokens)]
    begin = 1
    for ngrams, longer in itertools.pairwise(orders):
        assert ngrams.children is not None, "the highest order has none"
        end = begin + len(ngrams.tokens)
        # Each is checked too, because a sum may overflow to the right number.
        possible = (ngrams.children >= 0) & (ngrams.children <= len(longer.tokens))
        if not bool(possible.all()) or int(ngrams.children.sum()) != len(longer.tokens):
            raise ValueError("n-grams without a context")
        contexts = torch.arange(begin, end, device=ngrams.tokens.device)
        parents.append(contexts.repeat_interleave(ngrams.children))
        begin = end
    return torch.cat(parents)


def vocabulary_digest(pieces: Sequence[str]) -> str:
    """Return a digest of a vocabulary."""
    return hashlib.sha256("\n".join(pieces).encode()).hexdigest()


def read_language_model(path: Path, pieces: Sequence[str], device: torch.device) -> LanguageModel:
    """Read a language model of the vocabulary that has these pieces.

    Raises:
        CheckpointError: if the file is missing, damaged, or of another vocabulary.
    """
    if not path.is_file():
        raise MissingCheckpointError(f"{path}: no such file")
    try:
        with safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    except (SafetensorError, OSError) as error:
        raise UnreadableCheckpointError(f"{path}: {error}") from error
    if metadata.get("kind") != KIND:
        raise UnreadableCheckpointError(f"{path} is not a language model that `steno train language-model` wrote")
    if metadata.get("vocabulary") != vocabulary_digest(pieces):
        raise UnsupportedValueError("language_model", str(path), "one that was made with this model's vocabulary")
    try:
        weight, bonus = (_finite(metadata[name]) for name in ("weight", "bonus"))
        return LanguageModel(_orders(tensors), len(pieces), weight, bonus).to(device)
    except (KeyError, ValueError, RuntimeError) as error:
        raise UnreadableCheckpointError(f"{path} is damaged: {error}") from error


def _orders(tensors: Mapping[str, Tensor]) -> list[Ngrams]:
    highest = sum(name.startswith("tokens.") for name in tensors)
    if not 1 <= highest <= MAX_ORDER or len(tensors) != 4 * highest - 2:
        raise ValueError(f"{len(tensors)} tensors for n-grams of {highest} orders")
    orders = []
    for order in range(1, highest + 1):
        tokens = tensors[f"tokens.{order}"].long()
        names = ("log_probabilities", "backoffs", "children") if order < highest else ("log_probabilities",)
        fields = {name: tensors[f"{name}.{order}"] for name in names}
        if any(field.shape != tokens.shape or tokens.dim() != 1 for field in fields.values()):
            raise ValueError(f"n-grams of order {order} that differ in number")
        floats = {name: field.float() for name, field in fields.items() if name != "children"}
        if not all(bool(field.isfinite().all()) and bool((field <= 0).all()) for field in floats.values()):
            raise ValueError(f"log probabilities of order {order} that are above 0 or not finite")
        children = fields["children"].long() if order < highest else None
        orders.append(Ngrams(tokens, floats["log_probabilities"], floats.get("backoffs"), children))
    return orders


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
