"""Counted sentences become probabilities, and the file is read back as the model it describes."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from models.errors import CheckpointError, MissingCheckpointError, UnsupportedValueError
from models.search.language_model import KIND, read_language_model, vocabulary_digest
from training.errors import TrainingError
from training.language_model import write_language_model

PIECES = ("a", "b", "c", "d")
CPU = torch.device("cpu")
SENTENCES = st.lists(st.lists(st.integers(0, 3), max_size=8), min_size=1, max_size=30)


def written(path, sentences, least=(1, 1), pieces=PIECES):
    write_language_model(sentences, pieces, path, least=least, weight=0.5, bonus=1.0)
    return path


def model_of(path, sentences, least=(1, 1)):
    return read_language_model(written(path, sentences, least), PIECES, CPU)


def after(model, context):
    """Return the state after a context at the start of an utterance."""
    state = torch.tensor([model.start])
    for token in context:
        _, state = model.score(state, torch.tensor([token]))
    return state


def probability(model, context, token):
    score, _ = model.score(after(model, context), torch.tensor([token]))
    return math.exp(score)


@given(SENTENCES, st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(1, 4), max_size=3).map(sorted))
@example(sentences=[[]], context=[], least=[1, 1, 1])  # fewer tokens than the longest n-gram
@example(sentences=[[0, 0, 0]] * 2, context=[0], least=[1])  # no n-gram is seen just once
@settings(max_examples=60, deadline=None)
def test_the_probabilities_after_every_context_add_up_to_one(tmp_path_factory, sentences, context, least):
    model = model_of(tmp_path_factory.mktemp("model") / "some.ngrams", sentences, least)

    state = after(model, context)
    labels, _ = model.score(state.expand(4), torch.arange(4))

    assert float(labels.exp().sum() + model.score_end(state).exp().sum()) == pytest.approx(1, abs=0.02)
    assert bool((labels < 0).all())


@given(SENTENCES, st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_many_contexts_are_answered_as_each_alone(tmp_path_factory, sentences, seed):
    model = model_of(tmp_path_factory.mktemp("model") / "some.ngrams", sentences)
    random = torch.Generator().manual_seed(seed)
    states = torch.stack([after(model, torch.randint(4, (n,), generator=random).tolist())[0] for n in range(6)])
    states, tokens = states.view(2, 3), torch.randint(4, (2, 3), generator=random)

    scores, ngrams = model.score(states, tokens)

    for row in range(2):
        for column in range(3):
            score, ngram = model.score(states[row, column], tokens[row, column])
            assert (score, ngram) == (scores[row, column], ngrams[row, column])


def test_kneser_and_ney_by_hand(tmp_path):
    """b follows a and c, d follows b alone: of the two, b is likelier where nothing is known."""
    model = model_of(tmp_path / "some.ngrams", [[0, 1], [2, 1], [1, 3], [1, 3], [1, 3]], least=(1,))

    # Bigrams: start a, start c, start b x 3, a b, c b, b d x 3, b end x 2, d end x 3: of 8, four were seen once and
    # one twice, so the discount is 4 / (4 + 2 x 1).
    discount = 4 / 6
    # Unigrams count what precedes them: a 1, b 3 (start, a, c), c 1, d 1, end 2 (b, d); half a token is added to each.
    lower = (1 + 0.5) / (1 + 3 + 1 + 1 + 2 + 5 * 0.5)
    left = (discount + discount) / 5
    assert probability(model, [1], 3) == pytest.approx((3 - discount) / 5 + left * lower, rel=2e-3)
    assert probability(model, [1], 0) == pytest.approx(left * lower, rel=2e-3)
    assert probability(model, [3, 3, 0, 3], 1) > probability(model, [3, 3, 0, 3], 3)


def test_what_was_seen_too_rarely_is_left_out(tmp_path):
    sentences = [[0, 1, 2]] * 3 + [[3, 2, 1]]

    all_of_them = write_language_model(sentences, PIECES, tmp_path / "a", least=(1, 1), weight=1, bonus=0)
    some = write_language_model(sentences, PIECES, tmp_path / "b", least=(1, 2), weight=1, bonus=0)

    assert all_of_them == 6 + 8 + 6
    assert some == 6 + 8 + 3
    assert read_language_model(tmp_path / "b", PIECES, CPU).ngrams == some


@pytest.mark.parametrize(
    ("sentences", "least", "pieces", "message"),
    [
        ([], (1,), PIECES, "no sentences"),
        ([[0]], (2, 1), PIECES, "at least as often"),
        ([[0]], (1,) * 8, PIECES, "n-grams of 9 are too long"),
        ([[0]], (1,) * 7, "x" * 300, "n-grams of 8 out of 300 labels are too many"),
    ],
)
def test_sentences_that_cannot_be_counted_are_an_error(tmp_path, sentences, least, pieces, message):
    with pytest.raises(TrainingError, match=message):
        written(tmp_path / "some.ngrams", sentences, least, pieces)


def damaged(name, change):
    def damage(path):
        tensors = load_file(path)
        tensors[name] = change(tensors[name])
        save(tensors, path)

    return damage


def overflowing(counts):
    """Return counts with the same sum, in 64 bits."""
    counts = counts.long()
    counts[:4] += 2**62
    return counts


def save(tensors, path, **metadata):
    known = {"kind": KIND, "vocabulary": vocabulary_digest(PIECES), "weight": "0.5", "bonus": "1"}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(tensors, path, known | metadata)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: save({"other": torch.zeros(3)}, path),
        lambda path: save(load_file(path), path, kind="another"),
        lambda path: save(load_file(path), path, weight="nan"),
        lambda path: save(load_file(path), path, bonus="much"),
        damaged("tokens.2", lambda tokens: tokens.int().flip(0)),
        damaged("tokens.2", lambda tokens: tokens[:-1]),
        damaged("tokens.1", lambda tokens: tokens.int() + 7),
        damaged("tokens.3", lambda tokens: None),
        damaged("children.1", lambda counts: counts * 0),
        damaged("children.1", overflowing),
        damaged("children.2", lambda counts: counts.roll(1)),
        damaged("backoffs.1", lambda values: values * torch.nan),
        damaged("backoffs.1", lambda values: values[:2]),
        damaged("log_probabilities.1", lambda values: values + 1000),
        damaged("log_probabilities.2", lambda values: values[:, None]),
    ],
)
def test_a_damaged_file_is_an_error_of_its_own(tmp_path, damage):
    path = written(tmp_path / "some.ngrams", [[0, 1, 2], [1, 1, 0], [3, 0, 1]])

    damage(path)

    with pytest.raises(CheckpointError):
        read_language_model(path, PIECES, CPU)


@pytest.mark.parametrize(
    ("name", "pieces", "kind", "message"),
    [
        ("none.ngrams", PIECES, MissingCheckpointError, r"none\.ngrams"),
        ("some.ngrams", ("a", "b", "c", "e"), UnsupportedValueError, "vocabulary"),
    ],
)
def test_a_missing_file_and_a_model_of_another_vocabulary_are_errors(tmp_path, name, pieces, kind, message):
    written(tmp_path / "some.ngrams", [[0, 1]])

    with pytest.raises(kind, match=message):
        read_language_model(tmp_path / name, pieces, CPU)
