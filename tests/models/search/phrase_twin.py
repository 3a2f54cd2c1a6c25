"""What phrases add to a text, by their definition and without a tree, to compare searches with."""

import torch
from hypothesis import strategies as st

from models.search.phrases import _MOST_GAIN, BatchPhrases, grow_tree

LABELS = 3


class PhraseTwin:
    """The phrases of a row: weights by tokens. A state is what the text ends with that begins a phrase, as tokens."""

    def __init__(self, phrases, ends_word):
        self.phrases = phrases
        self.ends_word = ends_word
        self._begun = {tokens[:size] for tokens in phrases for size in range(len(tokens) + 1)} | {()}

    def state(self, text):
        return next(text[at:] for at in range(len(text) + 1) if text[at:] in self._begun)

    def gain(self, state):
        weights = [weight for tokens, weight in self.phrases.items() if tokens[: len(state)] == state]
        return min(max(weights), _MOST_GAIN - self.total(state[:-1]))

    def total(self, state):
        return sum(self.gain(state[: size + 1]) for size in range(len(state)))

    def kept(self, state, *, word_ends):
        """What of the total no break takes away: that of the phrases that are complete."""
        if not state:
            return 0.0
        before, shorter = state[:-1], self.state(state[1:])
        kept = max(self.kept(before, word_ends=self.ends_word[state[-1]]), self.kept(shorter, word_ends=False))
        if not word_ends:
            return kept
        complete = self.total(state) if state in self.phrases else 0.0
        return max(complete, kept, self.kept(shorter, word_ends=True))

    def owed(self, state, *, word_ends):
        return self.total(state) - self.kept(state, word_ends=word_ends)

    def added(self, text, token):
        """What a token adds after a text."""
        before, after = self.state(text), self.state((*text, token))
        owed = self.owed(before, word_ends=self.ends_word[token])
        if not after:
            return -owed
        return self.gain(after) + self.owed(after[:-1], word_ends=self.ends_word[token]) - owed

    def added_at_end(self, text):
        return -self.owed(self.state(text), word_ends=True)

    def all_added(self, text):
        return sum(self.added(text[:at], token) for at, token in enumerate(text)) + self.added_at_end(text)


@st.composite
def phrase_rows(draw, rows, labels=LABELS, first=0):
    """Phrases of each row, some without, of labels from the first on, and which labels end a word."""
    ends_word = draw(st.lists(st.booleans(), min_size=labels, max_size=labels))
    tokens = st.lists(st.integers(first, labels - 1), min_size=1, max_size=4).map(tuple)
    lists = st.dictionaries(tokens, st.sampled_from([0.25, 1.0, 3.0]), max_size=5)
    return [PhraseTwin(draw(lists), ends_word) for _ in range(rows)]


def in_tensors(twins, has_text=None, device="cpu"):
    """The phrases of a batch, as the searches take them; ``has_text`` says which labels are part of a text."""
    ends_word = twins[0].ends_word
    trees = [grow_tree(twin.phrases, ends_word).to(device) if twin.phrases else None for twin in twins]
    kinds = torch.tensor([ends_word, has_text or [True] * len(ends_word)], device=device)
    return BatchPhrases(trees, *kinds)
