"""A stateless predictor gives what NeMo's arithmetic gives, written out here for one text."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.heads.stateless import StatelessPredictor

LABELS = 5


def random_predictor(seed, width, context, *, is_normalized):
    torch.manual_seed(seed)
    return StatelessPredictor(LABELS, width, context, is_normalized=is_normalized).double()


@torch.no_grad()
def output_after(predictor, text, *, is_normalized):
    """Rows of the tables for the last labels, the newest first, end to end; none for labels before the first."""
    rows = []
    for age, table in enumerate(predictor.embeddings):
        known = len(text) > age
        rows.append(table.weight[text[-1 - age]] if known else torch.zeros(table.embedding_dim).double())
    joined = torch.cat(rows)
    if not is_normalized:
        return joined
    return (joined - joined.mean()) / (joined.var(correction=0) + 1e-5).sqrt()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    context=st.integers(1, 4),
    extra=st.integers(0, 5),
    is_normalized=st.booleans(),
    texts=st.lists(st.lists(st.integers(0, LABELS - 1), min_size=6, max_size=6), min_size=1, max_size=3),
)
def test_steps_and_whole_texts_give_the_embeddings_of_the_last_labels(seed, context, extra, is_normalized, texts):
    predictor = random_predictor(seed, 2 * context + extra, context, is_normalized=is_normalized)
    outputs = [[output_after(predictor, text[:end], is_normalized=is_normalized) for end in range(7)] for text in texts]
    wanted = torch.stack([torch.stack(one) for one in outputs])

    at_once = predictor.read(torch.tensor(texts))
    state = predictor.initial_state(len(texts))
    for place in range(7):
        newest = [text[place - 1] if place else LABELS for text in texts]
        output, state = predictor(torch.tensor(newest), state)
        assert torch.allclose(output, wanted[:, place], atol=1e-12)
        assert torch.allclose(at_once[:, place], wanted[:, place], atol=1e-12)
    assert state[0].dtype == torch.int64
    assert state[0].squeeze(2).T.tolist() == [text[::-1][: context - 1] for text in texts]
