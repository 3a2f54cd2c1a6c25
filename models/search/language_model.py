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
from copy import copy
from dataclasses import dataclass, fields
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


@dataclass(slots=True, kw_only=True)
class LanguageModel:
    """Log probabilities of tokens after a context, as an automaton with back-off.

    A state has arcs for some tokens. Any other token pays the back-off weight of the state and is scored in the state
    that it backs off to. Besides the labels there are two tokens, start and end of an utterance.

    Attributes:
        keys: state x (labels + 2) + token of each arc, int64, ascending.
        log_probabilities: of each arc, float32.
        targets: the state after each arc, int32.
        backoffs: back-off weight of each state, float32.
        suffixes: the state that each state backs off to, int32.
        depth: states to try at most.
        labels: number of labels of its vocabulary.
        start: the state at the start of an utterance.
        ngrams: number of n-grams.
        weight: factor of its log probabilities in a search.
        bonus: added to a beam's score for each token that it says anything of, so that short texts have no advantage.
        has_text: whether it says anything of a token, bool [labels + 2]; others change no state.
        ends_word: of a model of words (models/text/word_ngrams.py): whether a word before a token is complete.
        completions: what each state then gains, float32.
        completed: the state that it then is first, int32.
    """

    keys: Tensor
    log_probabilities: Tensor
    targets: Tensor
    backoffs: Tensor
    suffixes: Tensor
    depth: int
    labels: int
    start: int
    ngrams: int
    weight: float
    bonus: float
    has_text: Tensor
    ends_word: Tensor | None = None
    completions: Tensor | None = None
    completed: Tensor | None = None

    def to(self, device: torch.device) -> "LanguageModel":
        """Return a copy on a device."""
        moved = copy(self)
        for name, tensor in self._tensors.items():
            setattr(moved, name, tensor.to(device))
        return moved

    @property
    def nbytes(self) -> int:
        """Its memory on the device."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    @property
    def _tensors(self) -> dict[str, Tensor]:
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: value for name, value in values if isinstance(value, Tensor)}

    def score(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log probability of each token in its state, and the state after it.

        Args:
            states: int64, any shape.
            tokens: labels, int64; its shape broadcasts with that of ``states``.

        Returns:
            float32 and int64, in the broadcast shape.
        """
        if self.ends_word is None or self.completions is None or self.completed is None:
            return self._scored(states, tokens)
        ends, has_text = self.ends_word[tokens], self.has_text[tokens]
        scores, targets = self._scored(self.completed[states].long().where(ends, states), tokens)
        return (scores + self.completions[states] * ends) * has_text, targets.where(has_text, states)

    def _scored(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        contexts = [states]
        while len(contexts) < self.depth:
            contexts.append(self.suffixes[contexts[-1]].long())
        tried = torch.stack(contexts)
        keys = tried * (self.labels + 2) + tokens
        at = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        first = (self.keys[at] == keys).max(dim=0, keepdim=True).indices
        arc = at.gather(0, first).squeeze(0)
        places = torch.arange(self.depth, device=states.device).view(-1, *[1] * states.dim())
        penalty = (self.backoffs[tried] * (places < first)).sum(dim=0)
        return penalty + self.log_probabilities[arc], self.targets[arc].long()

    def score_end(self, states: Tensor) -> Tensor:
        """Return the log probability of the end of the utterance, in the shape of ``states``."""
        return self.score(states, torch.full_like(states, self.labels + 1))[0]


def of_ngrams(orders: Sequence[Ngrams], labels: int, weight: float, bonus: float) -> LanguageModel:
    """Return the model whose states are the n-grams below the highest order: 0, the empty context, then order by order.

    Raises:
        ValueError: if the n-grams are not sorted, or lack unigrams, contexts or suffixes.
    """
    width = labels + 2
    parents = _parents(orders)
    tokens = torch.cat([ngrams.tokens for ngrams in orders])
    keys = parents * width + tokens
    if not bool((keys[1:] > keys[:-1]).all()):
        raise ValueError("n-grams that are not sorted")
    if not torch.equal(orders[0].tokens, torch.arange(width)) or bool((tokens >= width).any()):
        raise ValueError(f"unigrams that are not those of {labels} labels")
    # Of each n-gram, numbered from 1: the n-gram without its first token.
    suffixes = torch.zeros(len(tokens) + 1, dtype=torch.int64)
    begin = width
    for ngrams in orders[1:]:
        end = begin + len(ngrams.tokens)
        wanted = suffixes[parents[begin:end]] * width + tokens[begin:end]
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        if not torch.equal(keys[at], wanted):
            raise ValueError("an n-gram without its suffix")
        suffixes[begin + 1 : end + 1] = at + 1
        begin = end
    # The context after an n-gram of the highest order is the n-gram without its first token.
    states = 1 + len(tokens) - len(orders[-1].tokens)
    after = torch.arange(1, len(tokens) + 1)
    after[states - 1 :] = suffixes[states:]
    backoffs = [ngrams.backoffs for ngrams in orders if ngrams.backoffs is not None]
    return LanguageModel(
        keys=keys,
        log_probabilities=torch.cat([ngrams.log_probabilities for ngrams in orders]),
        targets=after.int(),
        backoffs=torch.cat([torch.zeros(1), *backoffs]),
        suffixes=suffixes[:states].int(),
        depth=len(orders),
        labels=labels,
        start=int(after[labels]),
        ngrams=len(tokens),
        weight=weight,
        bonus=bonus,
        has_text=torch.ones(width, dtype=torch.bool),
    )


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
        return of_ngrams(_orders(tensors), len(pieces), weight, bonus).to(device)
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
