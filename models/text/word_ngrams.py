"""Language models of words, as most ARPA files are, compiled to the tokens that a model writes.

A token gains how much likelier the beginning of a word makes it: the log probability, after the words before, of all
words that are usually written through the beginning with the token, less that of those through the beginning before it.
So the context counts from a word's first token on, and together the tokens of a word gain its log probability. A word
that is divided otherwise than in training gains what it would without n-grams of the words before.

States are contexts of whole words, and contexts with the beginning of a word (``_compiled``). A beginning that no word
has after a context is looked up after a shorter one, as words are. What no word begins with is an unknown word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from models.errors import UnsupportedValueError
from models.search.arpa import UNKNOWN, Arpa, is_arpa, read_arpa
from models.search.language_model import LanguageModel, read_language_model
from models.text.phrases import vocabulary_parts, written_ways
from models.text.tokenizers import WORD_START, SentencePieceTokenizer, Vocabulary
from transcripts.scripts import is_unspaced

# NeMo writes a model of tokens in one character for each: its number and this.
_NEMO_OFFSET = 100


def open_language_model(path: Path, vocabulary: Vocabulary, device: torch.device) -> LanguageModel:
    """Read a language model for a vocabulary: an ARPA file of words or tokens, or what training wrote.

    Raises:
        CheckpointError: if the file is missing, damaged, or of another vocabulary.
    """
    if not is_arpa(path):
        return read_language_model(path, vocabulary.pieces, device)
    arpa = read_arpa(path)
    pieces = {piece: token for token, piece in enumerate(vocabulary.pieces)}
    own = set(arpa.words) - {UNKNOWN}
    as_nemo = {chr(token + _NEMO_OFFSET): token for token in pieces.values()}
    numbers = pieces if any(word.startswith(WORD_START) for word in own) else as_nemo
    if own <= numbers.keys():
        return arpa.model(numbers, len(pieces)).to(device)
    return _compiled(arpa, vocabulary, str(path)).to(device)


@dataclass(frozen=True, slots=True)
class _Items:
    """Something of which words have several, those from training first: numbers [items, fields], and how many of each.

    Attributes:
        values: the numbers, sorted by word.
        counts: items of each word.
        usual: those of them from training.
    """

    values: Tensor
    counts: Tensor
    usual: Tensor

    @classmethod
    def of(cls, rows: Mapping[tuple[int, ...], bool], words: int) -> "_Items":
        """Sort rows that begin with the number of their word; each says whether it is from training."""
        table = torch.tensor(sorted((word, not is_usual, *row) for (word, *row), is_usual in rows.items()))
        word, is_other = table[:, 0], table[:, 1] > 0
        return cls(table[:, 2:], word.bincount(minlength=words), word[~is_other].bincount(minlength=words))

    def of_ngrams(self, contexts: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the items of the last words of n-grams, after a context those from training only.

        The first tensor has the index of the n-gram of each, the second the values.
        """
        counts = self.counts[words].where(contexts == 0, self.usual[words])
        ngram = torch.arange(len(words)).repeat_interleave(counts)
        firsts = (self.counts.cumsum(0) - self.counts)[words] - (counts.cumsum(0) - counts)
        return ngram, self.values[torch.arange(len(ngram)) + firsts[ngram]]


class _Spelling:
    """How words are written: through which beginnings tokens lead, which are numbered; 0 is the empty one.

    Attributes:
        arcs: a beginning, a token, and the beginning after it.
        beginnings: each beginning of a word that is not empty, once, and whether the word counts in its probability.
        ends: each beginning that is the word.
        size: the number of beginnings.
        said: tokens of which words are made.
    """

    def __init__(self, words: Sequence[str], vocabulary: Vocabulary, path: str) -> None:
        texts, end = vocabulary.token_bytes, len(vocabulary.pieces) + 1
        parts = vocabulary_parts(vocabulary)
        numbers = {b"": 0}
        arcs: dict[tuple[int, ...], bool] = {}
        ends: dict[tuple[int, ...], bool] = {}
        usual: dict[tuple[int, int], bool] = {}
        taken: dict[bytes, int] = {}
        known = frozenset(words)
        for number, word in enumerate(words):
            if word == UNKNOWN:
                continue
            written: set[bytes] = set()
            for tokens in (way for part in parts for way in written_ways(word, part)):
                whole = b"".join(texts[token] for token in tokens)
                form = whole.decode().removeprefix(" ")
                if (form != word and form in known) or taken.setdefault(whole, number) != number:
                    continue  # it is another word
                for way in (tokens,) if whole in written else (_usual(form, vocabulary), tokens):
                    before = text = b""
                    for token in way:
                        text += texts[token]
                        after = numbers.setdefault(text, len(numbers))
                        arcs.setdefault((number, numbers[before], token, after), whole not in written)
                        usual.setdefault((number, after), whole not in written)
                        before = text
                    if way:
                        written.add(whole)
                ends[number, numbers[whole]] = True
        if not ends:
            raise UnsupportedValueError("language_model", path, "one of words that this model can write")
        arcs[len(words) + 1, 0, end, len(numbers)] = True  # the end of an utterance is a word of one token
        usual[len(words) + 1, len(numbers)] = True
        begin_usually = {after for (_, after), is_usual in usual.items() if is_usual}
        beginnings: dict[tuple[int, ...], bool] = {
            (word, after, int(is_usual or after not in begin_usually)): is_usual
            for (word, after), is_usual in usual.items()
        }
        self.size = len(numbers) + 1
        self.said = {arc[2] for arc in arcs}
        self.arcs = _Items.of(arcs, len(words) + 2)
        self.beginnings = _Items.of(beginnings, len(words) + 2)
        self.ends = _Items.of(ends, len(words) + 2)


def _usual(form: str, vocabulary: Vocabulary) -> Sequence[int]:
    """Return the tokens in which training wrote a word; none if they are unknown."""
    tokenizer, texts = vocabulary.tokenizer, vocabulary.token_bytes
    tokens = tokenizer.encode(form) if isinstance(tokenizer, SentencePieceTokenizer) else None
    return tokens if tokens and b"".join(texts[token] for token in tokens) == f" {form}".encode() else ()


def _compiled(arpa: Arpa, vocabulary: Vocabulary, path: str) -> LanguageModel:
    spelling = _Spelling(arpa.words, vocabulary, path)
    grams = arpa.model({word: number for number, word in enumerate(arpa.words)}, len(arpa.words))
    width = grams.labels + 2
    contexts, words = grams.keys // width, grams.keys % width
    suffixes, backoffs, followers = grams.suffixes.long(), grams.backoffs.double(), grams.targets.long()
    size, unknown = spelling.size, len(suffixes)  # the state in an unknown word is the first after the contexts

    ngram, beginning = spelling.beginnings.of_ngrams(contexts, words)
    nodes, node = torch.unique(contexts[ngram] * size + beginning[:, 0], return_inverse=True)
    context = nodes // size
    shorter = torch.searchsorted(nodes, suffixes[context] * size + nodes % size)
    length = torch.zeros_like(context)  # of the context, in words
    at = context
    while bool(at.any()):
        length += at > 0
        at = suffixes[at]
    levels = [(length == words_before).nonzero()[:, 0] for words_before in range(grams.depth)]

    # The probability of each beginning: of the words that the context has, and of those that it backs off to.
    lower = grams.score(suffixes[contexts], words)[0]
    mass = torch.zeros(2, len(nodes), dtype=torch.float64)
    for total, logarithms in zip(mass, (grams.log_probabilities, lower), strict=True):
        total.index_add_(0, node, logarithms.double().exp()[ngram] * beginning[:, 1])
    own, shadowed = mass
    begun = own.log()
    for level in levels[1:]:
        left = (begun[shorter[level]].exp() - shadowed[level]).clamp(min=0)
        begun[level] = (own[level] + backoffs[context[level]].exp() * left).log()

    # Contexts, the unknown word, beginnings; the empty context and its beginnings back off to the unknown word.
    first = unknown + 1
    is_root = length == 0
    owed = (backoffs[context] + begun[shorter]).where(~is_root, torch.tensor(arpa.unknown, dtype=torch.float64)) - begun
    leaves = (shorter + first).where(~is_root, unknown)
    penalties = torch.cat([backoffs, backoffs.new_zeros(1), owed])
    penalties[0] = arpa.unknown
    fallen = torch.cat([suffixes, suffixes.new_full((1,), unknown), leaves])
    fallen[0] = unknown

    # A word is complete where its beginning is all of it; other beginnings then are a word of a shorter context.
    completions, completed = torch.zeros_like(penalties), torch.arange(len(penalties))
    completed[unknown] = followers[arpa.words.index(UNKNOWN)]
    ended, end = spelling.ends.of_ngrams(contexts, words)
    place = torch.searchsorted(nodes, contexts[ended] * size + end[:, 0])
    is_word = torch.zeros(len(nodes), dtype=torch.bool)
    is_word[place] = True
    completions[place + first] = grams.log_probabilities[ended].double() - begun[place]
    completed[place + first] = followers[ended]
    for level in levels:
        states = level[~is_word[level]] + first
        completions[states] = penalties[states] + completions[fallen[states]]
        completed[states] = completed[fallen[states]]

    tokens = len(vocabulary.pieces) + 2
    ngram, arcs = spelling.arcs.of_ngrams(contexts, words)
    before, token, after = arcs.T
    source = torch.searchsorted(nodes, contexts[ngram] * size + before).clamp_(max=len(nodes) - 1)
    target = torch.searchsorted(nodes, contexts[ngram] * size + after)
    score = begun[target] - begun[source].where(before > 0, 0)
    keys = (source + first).where(before > 0, contexts[ngram]) * tokens + token
    every = torch.arange(tokens)
    keys = torch.cat([keys, unknown * tokens + every])
    keys, arc = torch.unique(keys, return_inverse=True)
    scores, targets = torch.zeros(len(keys)), torch.full((len(keys),), unknown)
    scores[arc[: len(score)]] = score.float()
    targets[arc[: len(score)]] = target + first

    texts = [text.decode(errors="replace") for text in vocabulary.token_bytes]
    has_text = [token in spelling.said or any(map(str.isalnum, text)) for token, text in enumerate(texts)]
    ends_word = [text.startswith(" ") or is_unspaced(text[:1]) for text in texts]
    model = replace(
        grams,
        keys=keys,
        log_probabilities=scores,
        targets=targets.int(),
        backoffs=penalties.float(),
        suffixes=fallen.int(),
        depth=grams.depth + 1,
        labels=tokens - 2,
        has_text=torch.tensor([*has_text, True, True]),
        ends_word=torch.tensor([*ends_word, True, True]),
        completions=completions.float(),
        completed=completed.int(),
    )
    spaces = [token for token, text in enumerate(texts) if text.startswith(" ")]
    if [texts[token] for token in spaces] == [" "]:  # labels are characters, and no space begins an utterance
        model.start = int(model.score(torch.tensor(model.start), torch.tensor(spaces[0]))[1])
    return model
