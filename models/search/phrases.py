"""Phrases in a search: a tree of their tokens, whose states say by how much each label gains.

The tree has failure links (Aho and Corasick, 1975), so a state is the longest end of the text that begins a phrase. A
token of a phrase gains; a phrase that breaks off gives back what it gained, and one that is complete keeps it. It is
complete when its last word is: with "cat", "category" gains nothing in the end. Tokens count for each phrase that they
are in. Each gains the weight of its phrase, the most of them where phrases share a node.

NeMo's tree (arXiv 2508.07014) adds more for later tokens, without bound. In a beam, texts that had gained much by the
middle of a phrase then pushed out all others, and ended there: to go on would have cost more than to stay silent.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

# The most that a phrase gains, whatever its weight and the number of its tokens: less than a label that is certain.
_MOST_GAIN = 5.0
# Phrases that repeat each other's beginnings in many ways may have more; the rest is then left out.
_MOST_ARCS = 1 << 19
_NO_KEY = torch.iinfo(torch.int64).max
# Graphs are for this number of arcs and states, or a power of two times as many.
_LEAST_SIZE = 1 << 14
_BY_ARC_OR_STATE = ("_keys", "_gains", "_targets", "_owed", "_tree")
_BY_ROW = ("_root_gains", "_root_targets", "start")


@dataclass(frozen=True, slots=True)
class Tree:
    """The states of a list of phrases; 0 is the root, in which no phrase has begun.

    A state has arcs for labels by which a phrase goes on. Other labels lead where they lead from the root, and the
    state gives back what it owes.

    Attributes:
        keys: state x labels + label of each arc, int64, ascending.
        gains: what the label of each arc gains, float32.
        targets: the state after each arc, int64.
        owed: what each state gives back to a label that ends a word, and to one that does not, float32 [states, 2].
        root_gains: what each label gains at the root, float32 [labels].
        root_targets: the state after each label at the root, int64 [labels].
    """

    keys: Tensor
    gains: Tensor
    targets: Tensor
    owed: Tensor
    root_gains: Tensor
    root_targets: Tensor

    def to(self, device: torch.device) -> "Tree":
        """Return a copy on a device."""
        return Tree(
            self.keys.to(device),
            self.gains.to(device),
            self.targets.to(device),
            self.owed.to(device),
            self.root_gains.to(device),
            self.root_targets.to(device),
        )


@dataclass(slots=True)
class _Node:
    """A state while the tree grows.

    ``total`` is what the tokens from the root gained together; of it ``kept`` is that of phrases that were complete
    before the last token, and ``kept_by_word`` is that with phrases that are complete if a word ends here.
    """

    children: dict[int, int]
    gain: float = 0.0
    is_end: bool = False
    failure: int = 0
    total: float = 0.0
    kept: float = 0.0
    kept_by_word: float = 0.0

    def owed(self, *, word_ends: bool) -> float:
        return self.total - (self.kept_by_word if word_ends else self.kept)


def grow_tree(phrases: Mapping[tuple[int, ...], float], ends_word: Sequence[bool]) -> Tree:
    """Return the tree of phrases, on the host.

    Args:
        phrases: weights by tokens.
        ends_word: of each label, whether a word before it is complete, as before a space or a comma.
    """
    nodes = [_Node({})]
    for tokens, weight in phrases.items():
        node = nodes[0]
        for token in tokens:
            if token not in node.children:
                node.children[token] = len(nodes)
                nodes.append(_Node({}))
            node = nodes[node.children[token]]
            node.gain = max(node.gain, weight)
        node.is_end = True
    _link(nodes, ends_word)
    labels = len(ends_word)
    arcs: dict[int, tuple[float, int]] = {}
    for number, node in enumerate(nodes):
        at = number
        while at and (at == number or len(arcs) < _MOST_ARCS):
            for token, target in nodes[at].children.items():
                arcs.setdefault(number * labels + token, (_moved(node, nodes[at], token, ends_word, nodes), target))
            at = nodes[at].failure
    keys = sorted(arcs)
    gains = torch.tensor([arcs[key][0] for key in keys])
    targets = torch.tensor([arcs[key][1] for key in keys], dtype=torch.int64)
    root_gains, root_targets = torch.zeros(labels), torch.zeros(labels, dtype=torch.int64)
    for token, target in nodes[0].children.items():
        root_gains[token], root_targets[token] = nodes[target].gain, target
    owed = torch.tensor([[node.owed(word_ends=False), node.owed(word_ends=True)] for node in nodes])
    return Tree(torch.tensor(keys, dtype=torch.int64), gains, targets, owed, root_gains, root_targets)


def _link(nodes: Sequence[_Node], ends_word: Sequence[bool]) -> None:
    """Find failures, totals and what is kept, from short to long."""
    level = [0]
    while level:
        following = []
        for number in level:
            parent = nodes[number]
            for token, child in parent.children.items():
                node, at = nodes[child], parent.failure
                while at and token not in nodes[at].children:
                    at = nodes[at].failure
                node.failure = nodes[at].children.get(token, 0) if number else 0
                shorter = nodes[node.failure]
                node.gain = min(node.gain, _MOST_GAIN - parent.total)
                node.total = parent.total + node.gain
                kept = parent.kept_by_word if ends_word[token] else parent.kept
                node.kept = max(kept, shorter.kept)
                complete = node.total if node.is_end else 0.0
                node.kept_by_word = max(complete, node.kept, shorter.kept_by_word)
                following.append(child)
        level = following


def _moved(node: _Node, fallen: _Node, token: int, ends_word: Sequence[bool], nodes: Sequence[_Node]) -> float:
    """Return what a token gains that goes on from ``fallen``, where a failure of ``node`` leads."""
    gain = nodes[fallen.children[token]].gain
    if fallen is node:
        return gain
    owed = partial(_Node.owed, word_ends=ends_word[token])
    return gain + owed(fallen) - owed(node)


class BatchPhrases:
    """The phrases of the rows of a batch.

    Attributes:
        start: state of each row at the start of its text, int64 [rows].
        has_text: whether each label is part of the text, bool [labels]; others change no state.
    """

    def __init__(self, trees: Sequence[Tree | None], ends_word: Tensor, has_text: Tensor) -> None:
        """Put the trees of the rows one after the other.

        Args:
            trees: the tree of each row, on the device; None: it has no phrases.
            ends_word: see ``grow_tree``, bool [labels], on the device.
            has_text: whether each label is part of the text, bool [labels], on the device; others, such as the end of
                the text, change no state.
        """
        device, labels = ends_word.device, len(ends_word)
        self._labels = labels
        self._ends_word = ends_word.long()
        self.has_text = has_text
        nothing = torch.zeros(labels, device=device)
        no_arc, nowhere = nothing[:0], torch.zeros_like(nothing, dtype=torch.int64)
        none = Tree(nowhere[:0], no_arc, nowhere[:0], nothing.new_zeros(1, 2), nothing, nowhere)
        distinct = {id(tree): tree or none for tree in trees}
        firsts: dict[int, int] = {}
        states = 0
        for key, tree in distinct.items():
            firsts[key] = states
            states += len(tree.owed)
        parts = list(zip(distinct.values(), firsts.values(), strict=True))
        end = nothing.new_full((1,), _NO_KEY, dtype=torch.int64)
        self._keys = torch.cat([*(tree.keys + first * labels for tree, first in parts), end])
        self._gains = torch.cat([*(tree.gains for tree, _ in parts), nothing[:1]])
        self._targets = torch.cat([*(tree.targets + first for tree, first in parts), end])
        self._owed = torch.cat([tree.owed for tree, _ in parts])
        self._root_gains = torch.stack([tree.root_gains for tree, _ in parts])
        self._root_targets = torch.stack([tree.root_targets + first for tree, first in parts])
        sizes = torch.tensor([len(tree.owed) for tree, _ in parts], device=device)
        self._tree = torch.arange(len(parts), device=device).repeat_interleave(sizes, output_size=states)
        self.start = torch.tensor([firsts[id(tree)] for tree in trees], dtype=torch.int64, device=device)

    @property
    def size(self) -> int:
        """The least size that graphs are made for and that holds these phrases."""
        return max(_LEAST_SIZE, 1 << (max(len(self._keys), len(self._owed)) - 1).bit_length())

    def lasting(self, rows: int) -> "BatchPhrases":
        """Return phrases of ``rows`` rows and of this size, at addresses that stay; ``replace`` gives them values."""
        room = copy(self)
        for names, length in ((_BY_ARC_OR_STATE, self.size), (_BY_ROW, rows)):
            for name in names:
                table: Tensor = getattr(self, name)
                setattr(room, name, table.new_zeros(length, *table.shape[1:]))
        room.replace(self)
        return room

    def replace(self, phrases: "BatchPhrases") -> None:
        """Take other phrases in place, of at most this size; rows beyond theirs have any."""
        self._keys.fill_(_NO_KEY)
        self.start.zero_()
        for name in _BY_ARC_OR_STATE + _BY_ROW:
            table: Tensor = getattr(phrases, name)
            getattr(self, name)[: len(table)] = table

    def first(self, rows: int) -> "BatchPhrases":
        """Return those of the first rows, in the same memory."""
        some = copy(self)
        some.start = self.start[:rows]
        return some

    def repeated(self, times: int) -> "BatchPhrases":
        """Return the same with each row ``times`` times, side by side."""
        several = copy(self)
        several.start = self.start.repeat_interleave(times)
        return several

    def score(self, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each label gains in its state, and the state after it.

        Args:
            states: int64, any shape.
            labels: int64, no blanks; its shape broadcasts with that of ``states``.

        Returns:
            float32 and int64, in the broadcast shape.
        """
        keys = states * self._labels + labels
        at = torch.searchsorted(self._keys, keys)
        has_arc = self._keys[at] == keys
        tree = self._tree[states]
        gains = self._root_gains[tree, labels] - self._owed[states, self._ends_word[labels]]
        gains = torch.where(has_arc, self._gains[at], gains)
        targets = torch.where(has_arc, self._targets[at], self._root_targets[tree, labels])
        has_text = self.has_text[labels]
        return gains * has_text, torch.where(has_text, targets, states)

    def score_end(self, states: Tensor) -> Tensor:
        """Return what the end of the text gains, which gives back what is owed; in the shape of ``states``."""
        return -self._owed[states, 1]
