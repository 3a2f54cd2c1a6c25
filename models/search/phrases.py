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
from dataclasses import dataclass, fields
from itertools import chain, pairwise

import numpy as np
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
        return Tree(*(getattr(self, one.name).to(device) for one in fields(self)))


def grow_tree(phrases: Mapping[tuple[int, ...], float], ends_word: Sequence[bool]) -> Tree:
    """Return the tree of phrases, on the host.

    States have the numbers of their arcs, plus one, in ascending order of state before and label; so those nearer to
    the root have lower ones. All states of a depth are made together.

    Args:
        phrases: weights by tokens, of one phrase at least.
        ends_word: of each label, whether a word before it is complete, as before a space or a comma.
    """
    labels, ends = len(ends_word), np.array(ends_word)
    keys, gains, complete, depths = _states(phrases, labels)
    states = len(keys) + 1
    parents, tokens = keys // labels, keys % labels
    # Of each state: its failure, and what the tokens from the root gained together. Of that, what phrases gained that
    # were complete before the last token, and what those gained that are complete if a word ends here.
    failures, totals = np.zeros(states, np.int64), np.zeros(states)
    kept = np.zeros((states, 2))
    for begin, end in pairwise(depths):
        new, parent, token = slice(begin + 1, end + 1), parents[begin:end], tokens[begin:end]
        if begin:
            failures[new] = _failures(keys, failures, parent, token, labels)
        fallen = failures[new]
        gains[begin:end] = np.minimum(gains[begin:end], _MOST_GAIN - totals[parent])
        totals[new] = totals[parent] + gains[begin:end]
        kept[new, 0] = np.maximum(kept[parent, ends[token].astype(int)], kept[fallen, 0])
        here = np.where(complete[begin:end], totals[new], 0.0)
        kept[new, 1] = np.maximum.reduce([here, kept[new, 0], kept[fallen, 1]])
    owed = totals[:, None] - kept
    from_state, arc, fallen = _arcs(parents, failures)
    word_ends = ends[tokens[arc]].astype(int)
    moved = gains[arc] + (owed[fallen, word_ends] - owed[from_state, word_ends])
    # The first of a key is that of the longest text.
    every, first = np.unique(from_state * labels + tokens[arc], return_index=True)
    at_root = slice(0, depths[1])
    root_gains, root_targets = torch.zeros(labels), torch.zeros(labels, dtype=torch.int64)
    root_gains[tokens[at_root]] = torch.from_numpy(gains[at_root]).float()
    root_targets[tokens[at_root]] = torch.arange(1, 1 + depths[1])
    return Tree(
        torch.from_numpy(every),
        torch.from_numpy(moved[first]).float(),
        torch.from_numpy(arc[first] + 1),
        torch.from_numpy(owed).float(),
        root_gains,
        root_targets,
    )


def _states(
    phrases: Mapping[tuple[int, ...], float], labels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """Return the arcs to all states but the root, and how many there are up to each depth, from 0.

    Of each arc: its key, what its token gains, and whether a phrase ends with it.
    """
    lengths = np.fromiter(map(len, phrases), np.int64, len(phrases))
    weights = np.fromiter(phrases.values(), np.float64, len(phrases))
    tokens = np.zeros((len(phrases), lengths.max()), np.int64)
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(phrases), np.int64)
    keys, gains, complete, depths = [], [], [], [0]
    state, rows = np.zeros_like(lengths), np.arange(len(phrases))
    for depth in range(tokens.shape[1]):
        longer = lengths[rows] > depth
        rows, state = rows[longer], state[longer]
        new, which = np.unique(state * labels + tokens[rows, depth], return_inverse=True)
        gain, is_end = np.zeros(len(new)), np.zeros(len(new), bool)
        np.maximum.at(gain, which, weights[rows])
        is_end[which[lengths[rows] == depth + 1]] = True
        state = which + depths[-1] + 1
        depths.append(depths[-1] + len(new))
        keys.append(new)
        gains.append(gain)
        complete.append(is_end)
    return np.concatenate(keys), np.concatenate(gains), np.concatenate(complete), depths


def _failures(keys: np.ndarray, failures: np.ndarray, parent: np.ndarray, token: np.ndarray, labels: int) -> np.ndarray:
    """Return the failure of each state after ``parent`` and ``token``; those of shorter texts are known."""
    found = np.zeros_like(parent)
    rows, fallen = np.arange(len(parent)), failures[parent]
    while len(rows):
        wanted = fallen * labels + token[rows]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        there = keys[at] == wanted
        found[rows[there]] = at[there] + 1
        goes_on = ~there & (fallen > 0)
        rows, fallen = rows[goes_on], failures[fallen[goes_on]]
    return found


def _arcs(parents: np.ndarray, failures: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arcs from states, their own and those of their failures in turn; not those from the root.

    Of each: the state, the number of the arc, and the state that has it.
    """
    begins = np.searchsorted(parents, np.arange(len(failures) + 1))
    states = fallen = np.arange(1, len(failures))
    found, room = [], len(parents) + _MOST_ARCS
    while len(states):
        counts = np.diff(begins)[fallen]
        fits = counts.cumsum() <= room
        states, fallen, counts = states[fits], fallen[fits], counts[fits]
        room -= counts.sum()
        before = (begins[fallen] - (counts.cumsum() - counts)).repeat(counts)
        found.append((states.repeat(counts), before + np.arange(len(before)), fallen.repeat(counts)))
        fallen = failures[fallen]
        states, fallen = states[fallen > 0], fallen[fallen > 0]
    from_state, arc, fallen = map(np.concatenate, zip(*found, strict=True))
    return from_state, arc, fallen


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
