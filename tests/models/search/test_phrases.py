"""The tree of phrases adds what their definition says, and greedy CTC search prefers what a plain loop prefers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.search.ctc import ctc_greedy
from models.search.preference import PHRASE_SCALE
from tests.models.search.phrase_twin import LABELS, PhraseTwin, in_tensors, phrase_rows

BLANK = LABELS
SEEDS = st.integers(0, 2**31)
texts = st.lists(st.integers(0, LABELS - 1), max_size=9).map(tuple)


@settings(max_examples=200, deadline=None)
@given(phrase_rows(3), st.lists(texts, min_size=3, max_size=3))
def test_each_token_adds_what_the_definition_says(twins, said):
    phrases = in_tensors(twins)
    for row, (twin, text) in enumerate(zip(twins, said, strict=True)):
        state = phrases.start[row]
        for at, token in enumerate(text):
            gains, targets = phrases.score(state, torch.arange(LABELS))
            assert gains.tolist() == pytest.approx([twin.added(text[:at], label) for label in range(LABELS)], abs=1e-4)
            state = targets[token]
        assert float(phrases.score_end(state)) == pytest.approx(twin.added_at_end(text), abs=1e-4)


A, B, S = 0, 1, 2  # S begins a word, the others go on with one


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ((S, A, B), 3),
        ((S, A, B, S, B), 3),
        ((S, A), 0),
        ((S, A, S, A, A), 0),
        ((S, A, B, B), 0),  # another word that begins alike
        ((S, A, B, S, A, B), 6),
        ((), 0),
    ],
)
def test_a_complete_phrase_keeps_what_it_gained_and_a_broken_one_gives_it_back(said, kept):
    twin = PhraseTwin({(S, A, B): 1.0}, [False, False, True])
    assert twin.all_added(said) == pytest.approx(kept)


def preferred(scores, twin):
    """The labels of each frame [frames] that phrases prefer, run by run."""
    raw = scores.argmax(-1).tolist()
    heard = scores.log_softmax(-1)
    labels, text, before = [], (), BLANK
    for frame, label in enumerate(raw):
        last = labels[-1] if labels else BLANK
        if label == BLANK:
            labels.append(BLANK)
        elif label in (before, last):
            labels.append(last)
        else:
            end = next((at for at in range(frame, len(raw)) if raw[at] != label), len(raw))
            sums = heard[frame:end].sum(0).tolist()
            ranks = {one: sums[one] + PHRASE_SCALE * twin.added(text, one) for one in range(LABELS) if one != last}
            labels.append(max(ranks, key=ranks.get))
            text = (*text, labels[-1])
        before = label
    return labels


@settings(max_examples=200, deadline=None)
@given(phrase_rows(4), st.lists(st.integers(0, 12), min_size=4, max_size=4), SEEDS)
def test_greedy_search_prefers_what_a_plain_loop_prefers_in_any_company(twins, lengths, seed):
    logits = 2 * torch.randn(4, max(lengths), BLANK + 1, generator=torch.Generator().manual_seed(seed))

    found = ctc_greedy(logits, torch.tensor(lengths), BLANK, in_tensors(twins)).rows()

    without = ctc_greedy(logits, torch.tensor(lengths), BLANK).rows()
    for row, plain, scores, length, twin in zip(found, without, logits, lengths, twins, strict=True):
        path = torch.tensor(preferred(scores[:length], twin), dtype=torch.int64)
        wanted = 20.0 * torch.nn.functional.one_hot(path, BLANK + 1)
        (again,) = ctc_greedy(wanted[None], torch.tensor([length]), BLANK).rows()
        assert (row.tokens, row.frames, row.ends) == (again.tokens, again.frames, again.ends)
        assert row.confidence == pytest.approx(
            [float(scores[frame].softmax(0)[token]) for token, frame in zip(row.tokens, row.frames, strict=True)]
        )
        if not twin.phrases:
            assert row == plain
