"""Beam search finds the likeliest text of all, and the alignment its likeliest way through the frames."""

import itertools
import math
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.search.ctc import ctc_greedy
from models.search.ctc_alignment import ctc_alignment
from models.search.ctc_beam import PHRASE_SCALE, ctc_beam
from models.search.language_model import read_language_model
from tests.models.search.phrase_twin import in_tensors, phrase_rows
from training.language_model import write_language_model

PIECES = ("a", "b", "c")
BLANK = 3
SENTENCES = [[0, 1, 2], [0, 1], [1, 1, 0], [2, 0, 1, 1], [2], [0, 2, 2]]
# Every text of so few frames has room in it.
WHOLE = 200
SEEDS = st.integers(0, 2**31)


@cache
def language_model(weight=0.7, bonus=0.4):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "some.ngrams"
        write_language_model(SENTENCES, PIECES, path, least=(1, 1), weight=weight, bonus=bonus)
        return read_language_model(path, PIECES, torch.device("cpu"))


def random_logits(seed, *shape):
    return 3 * torch.randn(*shape, BLANK + 1, generator=torch.Generator().manual_seed(seed))


def texts(logits):
    """Return the log probability of every text of a row, and the likeliest path of each, path by path."""
    scores = logits.log_softmax(-1).tolist()
    found, ways = {}, {}
    for path in itertools.product(range(BLANK + 1), repeat=len(scores)):
        text = tuple(label for label, _ in groupby(path) if label != BLANK)
        score = sum(row[label] for row, label in zip(scores, path, strict=True))
        found[text] = math.log(math.exp(found[text]) + math.exp(score)) if text in found else score
        if text not in ways or score > ways[text][0]:
            ways[text] = score, path
    return found, ways


def spans(path):
    runs = [(label, [frame for frame, _ in run]) for label, run in groupby(enumerate(path), key=lambda x: x[1])]
    return [(label, run[0], run[-1] + 1) for label, run in runs if label != BLANK]


def spoken_by(model, text):
    state, total = torch.tensor([model.start]), 0.0
    for token in text:
        score, state = model.score(state, torch.tensor([token]))
        total += model.weight * float(score) + model.bonus
    return total + model.weight * float(model.score_end(state))


@pytest.mark.slow
@given(SEEDS, st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_it_finds_the_likeliest_of_all_texts_with_and_without_frames_that_are_blank_for_certain(seed, certain):
    frames, model = len(certain), language_model()
    logits = random_logits(seed, 1, frames)
    logits[:, torch.tensor(certain), BLANK] = 30
    heard, ways = texts(logits[0])
    ranks = {text: score + spoken_by(model, text) for text, score in heard.items()}
    best, second = sorted(ranks, key=ranks.get, reverse=True)[:2]
    assume(ranks[best] - ranks[second] > 1e-3)

    (row,) = ctc_beam(logits, torch.tensor([frames]), BLANK, model, beam=WHOLE).rows()

    assert tuple(row.tokens) == best
    assert list(zip(row.tokens, row.frames, row.ends, strict=True)) == spans(ways[best][1])


def with_phrases(logits, twin):
    """Return the score of every text of a row, summed over its paths, with what phrases add on each."""
    scores = logits.log_softmax(-1).tolist()
    found = {}
    for path in itertools.product(range(BLANK + 1), repeat=len(scores)):
        score, text = 0.0, ()
        for frame, (label, row) in enumerate(zip(path, scores, strict=True)):
            score += row[label]
            if label != BLANK and (frame == 0 or path[frame - 1] != label):
                added = PHRASE_SCALE * twin.added(text, label)
                score += min(added, 0) if max(row) == row[BLANK] else added
                text = (*text, label)
        score += PHRASE_SCALE * twin.added_at_end(text)
        found[text] = math.log(math.exp(found[text]) + math.exp(score)) if text in found else score
    return found


@pytest.mark.slow
@given(SEEDS, st.integers(1, 5), phrase_rows(2))
@settings(max_examples=40, deadline=None)
def test_with_phrases_it_finds_the_best_of_all_texts_alone_and_in_company(seed, frames, twins):
    model, logits = language_model(), random_logits(seed, 2, frames)
    lengths = torch.tensor([frames, max(0, frames - 1)])

    rows = ctc_beam(logits, lengths, BLANK, model, beam=WHOLE, phrases=in_tensors(twins)).rows()

    (plain, _) = ctc_beam(logits, lengths, BLANK, model, beam=WHOLE).rows()
    for row, scores, length, twin in zip(rows, logits, lengths.tolist(), twins, strict=True):
        ranks = {text: score + spoken_by(model, text) for text, score in with_phrases(scores[:length], twin).items()}
        best, *others = sorted(ranks, key=ranks.get, reverse=True)
        assume(not others or ranks[best] - ranks[others[0]] > 1e-3)
        assert tuple(row.tokens) == best
    if not twins[0].phrases:
        assert rows[0] == plain


@given(SEEDS, st.lists(st.integers(0, 9), min_size=1, max_size=4), st.sampled_from([1, 2, 5]))
@settings(max_examples=40, deadline=None)
def test_every_row_gives_what_it_gives_alone(seed, lengths, beam):
    logits, model = random_logits(seed, len(lengths), 9), language_model()

    together = ctc_beam(logits, torch.tensor(lengths), BLANK, model, beam).rows()

    for row, scores, length in zip(together, logits, lengths, strict=True):
        (alone,) = ctc_beam(scores[None, :length], torch.tensor([length]), BLANK, model, beam).rows()
        assert (row.tokens, row.frames, row.ends) == (alone.tokens, alone.frames, alone.ends)
        assert row.confidence == pytest.approx(alone.confidence)


@given(SEEDS, st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_tokens_are_aligned_with_their_likeliest_path(seed, frames):
    logits = random_logits(seed, 1, frames)
    _, ways = texts(logits[0])
    scores = logits.log_softmax(-1)
    chosen = sorted(ways)[:: max(1, len(ways) // 10)]

    for text in chosen:
        tokens = torch.tensor([[*text, *[0] * (frames - len(text))]])
        (row,) = ctc_alignment(scores, torch.tensor([frames]), BLANK, tokens, torch.tensor([len(text)])).rows()
        assert row.tokens == list(text)
        assert list(zip(row.tokens, row.frames, row.ends, strict=True)) == spans(ways[text][1])
        assert row.confidence == pytest.approx(
            [float(scores[0, begin, label].exp()) for label, begin, _ in spans(ways[text][1])]
        )


def test_a_language_model_decides_unclear_speech():
    """After c and a, SENTENCES have b; the sound is of c a little more."""
    logits = torch.log(torch.tensor([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.45, 0.55, 0.0]]) + 1e-4)[None]

    (row,) = ctc_beam(logits, torch.tensor([3]), BLANK, language_model()).rows()

    assert [PIECES[token] for token in row.tokens] == ["c", "a", "b"]
    assert ctc_greedy(logits, torch.tensor([3]), BLANK).rows()[0].tokens == [2, 0, 2]


@pytest.mark.parametrize(("rows", "frames"), [(0, 5), (2, 0)])
def test_without_rows_or_frames_there_are_no_tokens(rows, frames):
    found = ctc_beam(
        torch.zeros(rows, frames, BLANK + 1), torch.zeros(rows, dtype=torch.int64), BLANK, language_model()
    )

    assert [row.tokens for row in found.rows()] == [[]] * rows
