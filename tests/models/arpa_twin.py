"""ARPA files, and the scores that their definition gives to sentences, word by word."""

import math
import random
from itertools import pairwise

from hypothesis import strategies as st

START, END, UNKNOWN = "<s>", "</s>", "<unk>"


class ArpaTwin:
    """N-grams with log probability and back-off weight, as base-10 logarithms."""

    def __init__(self, ngrams):
        self.ngrams = ngrams
        self.highest = max(map(len, ngrams))

    def score(self, context, word):
        """The natural logarithm of the probability of a word after others."""
        word = word if (word,) in self.ngrams else UNKNOWN
        context = tuple(one if (one,) in self.ngrams else UNKNOWN for one in context)[1 - self.highest :]
        context = context if self.highest > 1 else ()
        total = 0.0
        while (*context, word) not in self.ngrams:
            total += self.ngrams.get(context, (0.0, 0.0))[1]
            context = context[1:]
        return (total + self.ngrams[*context, word][0]) * math.log(10)

    def sentence(self, words):
        """The score of a whole sentence."""
        every = [START, *words, END]
        return sum(self.score(tuple(every[:at]), every[at]) for at in range(1, len(every)))

    def write(self, path, comments=()):
        """Write the file."""
        orders = [[one for one in self.ngrams.items() if len(one[0]) == n] for n in range(1, self.highest + 1)]
        lines = [*comments, "\\data\\", *(f"ngram {n}={len(every)}" for n, every in enumerate(orders, 1))]
        for order, every in enumerate(orders, 1):
            lines += ["", f"\\{order}-grams:"]
            for words, (probability, backoff) in every:
                lines.append(f"{probability!r}\t{' '.join(words)}" + (f"\t{backoff!r}" if order < len(orders) else ""))
        path.write_text("\n".join([*lines, "", "\\end\\", ""]))
        return path


@st.composite
def arpa_twins(draw, words):
    """A file whose n-grams are those of some sentences of these words, in random order, with random numbers."""
    sentences = draw(st.lists(st.lists(st.sampled_from(words), max_size=5), min_size=1, max_size=6))
    highest = draw(st.integers(1, 4))
    found = {(word,) for word in (*words, START, END, UNKNOWN)}
    for sentence in sentences:
        every = (START, *sentence, END)
        spans = ((first, first + order) for order in range(2, highest + 1) for first in range(len(every) + 1 - order))
        found |= {every[first:last] for first, last in spans}
    numbers = random.Random(draw(st.integers(0, 2**31)))
    ngrams = sorted(found)
    numbers.shuffle(ngrams)
    return ArpaTwin({ngram: (numbers.uniform(-3, -0.01), numbers.uniform(-1, 0.5)) for ngram in ngrams})


def normalized(sentences):
    """A bigram model whose probabilities add up to one after every word."""
    words = sorted({word for sentence in sentences for word in sentence})
    lower = dict.fromkeys([*words, END, UNKNOWN], 1 / (len(words) + 2))
    pairs = [pair for sentence in sentences for pair in pairwise([START, *sentence, END])]
    ngrams = {(START,): (-99.0, 0.0)} | {(word,): (math.log10(share), 0.0) for word, share in lower.items()}
    for before in {first for first, _ in pairs}:
        own = [last for first, last in pairs if first == before]
        for last in set(own):
            share = own.count(last) / (len(own) + 1) + lower[last] / (len(own) + 1)
            ngrams[before, last] = math.log10(share), 0.0
        ngrams[before,] = ngrams[before,][0], math.log10(1 / (len(own) + 1))
    return ArpaTwin(ngrams)
