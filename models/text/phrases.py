"""Phrases as a model writes them: the tokens of a phrase, and the trees of lists of phrases, each grown once."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch

from models.search.phrases import BatchPhrases, Tree, grow_tree
from models.text.tokenizers import Vocabulary
from transcripts.phrases import MOST_PHRASES, parse_phrases
from transcripts.scripts import is_unspaced

# A model may write a word in other pieces than its tokenizer would; these ways of the fewest pieces are in the tree.
_MOST_WAYS = 3
_TREES_KEPT = 64
# A list of a request's own often has the service's phrases too, which all such lists have.
_PHRASES_KEPT = 4 * MOST_PHRASES


class Pieces(dict[bytes, int]):
    """Tokens by their texts in UTF-8.

    Attributes:
        letters: the bytes of all texts.
        beginnings: all beginnings of the texts, themselves included.
    """

    def __init__(self, texts: Mapping[bytes, int]) -> None:
        super().__init__(texts)
        self.letters = bytes(set(b"".join(texts)))
        self.beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text) + 1))


class PhraseTrees:
    """Grows the trees of a model's phrases, and keeps the last ones."""

    def __init__(self, vocabulary: Vocabulary, device: torch.device) -> None:
        texts = vocabulary.token_bytes
        self._parts = vocabulary_parts(vocabulary)
        self._ends_word = [_ends_word(text) for text in texts]
        self._kinds = torch.tensor(self._ends_word, device=device), torch.tensor([*map(bool, texts)], device=device)
        self._device = device
        self._tree = lru_cache(_TREES_KEPT)(self._grown)
        self._ways = lru_cache(_PHRASES_KEPT)(self._written)

    def of_rows(self, lists: Sequence[str]) -> BatchPhrases | None:
        """Return the phrases of a batch from the lines of each row (transcripts/phrases.py); None if there are none."""
        if not any(lists):
            return None
        return BatchPhrases([self._tree(lines) if lines else None for lines in lists], *self._kinds)

    def _grown(self, lines: str) -> Tree | None:
        ways: dict[tuple[int, ...], float] = {}
        for text, weight in parse_phrases(lines):
            for tokens in self._ways(text):
                ways[tokens] = max(weight, ways.get(tokens, 0.0))
        return grow_tree(ways, self._ends_word).to(self._device) if ways else None

    def _written(self, text: str) -> list[tuple[int, ...]]:
        return [way for part in self._parts for way in written_ways(text, part)]


def vocabulary_parts(vocabulary: Vocabulary) -> list[Pieces]:
    """Return the parts of a vocabulary, each of which writes by itself: those of an aggregate are languages."""
    texts = vocabulary.token_bytes
    return [Pieces({texts[token]: token for token in reversed(part) if texts[token]}) for part in vocabulary.parts]


def written_ways(text: str, pieces: Pieces) -> list[tuple[int, ...]]:
    """Return the tokens of a phrase in each case in which a model may write it, and in several divisions.

    What has a character without a piece is left out, such as capitals where the model writes none.
    """
    cases = dict.fromkeys([text, text.lower(), text[:1].upper() + text[1:], text.upper()])
    spaces = [" ", ""] if is_unspaced(text[0]) else [" "]
    ways = [way for case in cases for space in spaces for way in divisions((space + case).encode(), pieces)]
    return list(dict.fromkeys(ways))


def divisions(text: bytes, pieces: Pieces) -> list[tuple[int, ...]]:
    """Return the few divisions of a text into the fewest pieces; of as many, those with longer pieces first."""
    if text.translate(None, pieces.letters):
        return []
    beginnings = pieces.beginnings
    # Of each byte: the pieces that begin there, with their ends; and bits N where the rest can be N pieces.
    begun: list[list[tuple[int, int]]] = [[] for _ in text]
    counts = [0] * len(text) + [1]
    for at in reversed(range(len(text))):
        possible = 0
        for end in range(at + 1, len(text) + 1):
            piece = text[at:end]
            if piece not in beginnings:
                break
            if counts[end] and (token := pieces.get(piece)) is not None:
                begun[at].append((token, end))
                possible |= counts[end] << 1
        counts[at] = possible
    ways: list[tuple[int, ...]] = []
    for count in range(counts[0].bit_length()):
        unfinished: list[tuple[tuple[int, ...], int, int]] = [((), 0, count)] if counts[0] >> count & 1 else []
        while unfinished:
            way, at, left = unfinished.pop()
            if left:
                left -= 1
                unfinished += [((*way, token), end, left) for token, end in begun[at] if counts[end] >> left & 1]
            else:
                ways.append(way)
                if len(ways) == _MOST_WAYS:
                    return ways
    return ways


def _ends_word(text: bytes) -> bool:
    """Return whether a word before a token of this text is complete: it begins with a space, a mark, or has no text."""
    first = text.decode(errors="replace")[:1]
    if first.isalnum():
        return is_unspaced(first)
    return first not in ("'", "\N{RIGHT SINGLE QUOTATION MARK}", "\N{REPLACEMENT CHARACTER}")
