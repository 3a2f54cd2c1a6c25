"""The beam search of an attention decoder: what plain Python finds, and with room for all texts the likeliest."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.search.attention import GreedyWriting
from models.search.attention_beam import BeamWriting
from models.search.drivers.eager import repeat
from models.search.preference import PHRASE_SCALE
from tests.models.search.phrase_twin import in_tensors, phrase_rows

END, LABELS, PROMPT = 0, 4, [2, 3]


class TableDecoder:
    """Scores the next token by a table of its own for each utterance, from the place and the token before."""

    vocabulary_size = LABELS

    def __init__(self, utterances, places, seed):
        random = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(utterances, places, LABELS, LABELS, generator=random)

    def cache(self, rows, capacity):
        return Kept(torch.zeros(1, rows, capacity), torch.zeros(1, rows, capacity))

    def __call__(self, tokens, positions, utterances, cache):
        cache.keys[0, :, positions] = tokens.float()
        cache.values[0, :, positions] = -tokens.float()
        # What was read last stands in the cache as well, if texts and their pasts have not been mixed up.
        before = -cache.values[0, :, positions[-1] - 1].long()
        scores = self.table[utterances, positions[-1], tokens[:, -1]] + 0.5 * self.table[utterances, 0, before]
        return torch.cat([scores, torch.full((len(tokens), 1), 9.0)], dim=1)[:, None]

    def log_probabilities(self, utterance, text):
        """The next token's, after a prompt and a text, in plain Python."""
        read = [*PROMPT, *text]
        table = self.table[utterance]
        return (table[len(read) - 1, read[-1]] + 0.5 * table[0, read[-2]]).log_softmax(-1).tolist()


class Kept:
    def __init__(self, keys, values):
        self.keys, self.values = keys, values


def penalty(tokens, exponent):
    return ((5 + len(PROMPT) + tokens + 1) / 6) ** exponent


def with_phrases(scores, text, twin):
    """Scores of the next tokens, with what phrases add."""
    at_end = PHRASE_SCALE * twin.added_at_end(text)
    added = [at_end if token == END else PHRASE_SCALE * twin.added(text, token) for token in range(LABELS)]
    ends = max(scores) == scores[END]
    return [score + (min(more, at_end) if ends else more) for score, more in zip(scores, added, strict=True)]


def plain_beam(decoder, utterance, limit, beam, exponent, twin=None):
    """Texts with their scores, the best first, in plain Python."""
    texts = [((), 0.0, limit <= len(PROMPT))]
    while not all(ended for _, _, ended in texts):
        longer = [text for text in texts if text[2]]
        for text, score, ended in texts:
            if not ended:
                scores = decoder.log_probabilities(utterance, text)
                for token, added in enumerate(with_phrases(scores, text, twin) if twin else scores):
                    written = text if token == END else (*text, token)
                    is_full = len(PROMPT) + len(written) >= limit
                    longer.append((written, score + added, token == END or is_full))
        texts = sorted(longer, key=lambda one: -one[1] / penalty(len(one[0]), exponent))[:beam]
    return texts


def search(decoder, limits, beam, exponent=0.0, extra=0, phrases=None):
    utterances = torch.arange(len(limits)).repeat_interleave(beam)
    longest = max(limits) + extra
    prompts = torch.tensor([PROMPT] * len(limits))
    writing = BeamWriting(decoder, utterances, prompts, longest, END, texts=beam, length_penalty=exponent)
    writing.restart(prompts, torch.tensor(limits), phrases)
    return writing.result(columns=min(repeat(GreedyWriting.step, writing), writing.capacity)).rows()


@given(
    limits=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    beam=st.integers(1, 5),
    exponent=st.sampled_from([0.0, 0.6, 1.0]),
    extra=st.integers(0, 3),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=60, deadline=None)
def test_every_utterance_gets_what_plain_python_finds(limits, beam, exponent, extra, seed):
    decoder = TableDecoder(len(limits), max(limits) + extra + 2, seed)

    rows = search(decoder, limits, beam, exponent, extra)

    for utterance, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        best = plain_beam(decoder, utterance, limit, beam, exponent)[0][0]
        assert row.tokens == list(best)
        for place, (token, confidence) in enumerate(zip(best, row.confidence, strict=True)):
            assert math.log(confidence) == pytest.approx(
                decoder.log_probabilities(utterance, best[:place])[token], abs=1e-4
            )


HAS_TEXT = [token != END for token in range(LABELS)]


@given(
    data=st.data(),
    limits=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    beam=st.integers(1, 5),
    exponent=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=100, deadline=None)
def test_with_phrases_every_utterance_gets_what_plain_python_finds(data, limits, beam, exponent, seed):
    decoder = TableDecoder(len(limits), max(limits) + 2, seed)
    twins = data.draw(phrase_rows(len(limits), LABELS, END + 1))

    rows = search(decoder, limits, beam, exponent, phrases=in_tensors(twins, HAS_TEXT))

    plain = search(decoder, limits, beam, exponent)
    for utterance, (row, limit, twin) in enumerate(zip(rows, limits, twins, strict=True)):
        assert row.tokens == list(plain_beam(decoder, utterance, limit, beam, exponent, twin)[0][0])
        if not twin.phrases:
            assert row == plain[utterance]


@given(data=st.data(), limits=st.lists(st.integers(0, 12), min_size=1, max_size=3), seed=st.integers(0, 2**20))
@settings(max_examples=100, deadline=None)
def test_with_phrases_greedy_search_ends_where_the_end_is_best_and_prefers_labels_elsewhere(data, limits, seed):
    decoder, prompts = TableDecoder(len(limits), max(limits) + 2, seed), torch.tensor([PROMPT] * len(limits))
    twins = data.draw(phrase_rows(len(limits), LABELS, END + 1))
    writing = GreedyWriting(decoder, torch.arange(len(limits)), prompts, max(limits), END)
    writing.restart(prompts, torch.tensor(limits), in_tensors(twins, HAS_TEXT))

    rows = writing.result(columns=repeat(GreedyWriting.step, writing)).rows()

    for utterance, (row, limit, twin) in enumerate(zip(rows, limits, twins, strict=True)):
        text = ()
        while len(PROMPT) + len(text) < limit:
            scores = decoder.log_probabilities(utterance, text)
            if max(scores) == scores[END]:
                break
            ranks = [scores[token] + PHRASE_SCALE * twin.added(text, token) for token in range(1, LABELS)]
            text = (*text, 1 + ranks.index(max(ranks)))
        assert row.tokens == list(text)


@given(seed=st.integers(0, 2**20))
@settings(max_examples=20, deadline=None)
def test_a_beam_with_room_for_all_texts_finds_the_likeliest(seed):
    room = 4
    decoder = TableDecoder(1, 10, seed)
    texts = [text for length in range(room + 1) for text in itertools.product(range(1, LABELS), repeat=length)]

    def score(text):
        tokens = text if len(text) == room else (*text, END)
        return sum(decoder.log_probabilities(0, text[:place])[token] for place, token in enumerate(tokens))

    (row,) = search(decoder, [len(PROMPT) + room], beam=3**room)

    assert row.tokens == list(max(texts, key=score))
