"""A search reads ARPA files of words and of tokens, and scores as their definition says (tests/models/arpa_twin.py).

That scores are KenLM's was looked at too: docs/measured/2026-11.md.
"""

import gzip
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import CheckpointError
from models.loading import load_model
from models.text.phrases import vocabulary_parts, written_ways
from models.text.tokenizers import CharacterTokenizer, Vocabulary
from models.text.word_ngrams import open_language_model
from tests.models import golden_data as golden
from tests.models.arpa_twin import END, START, UNKNOWN, ArpaTwin, arpa_twins, normalized

CPU = torch.device("cpu")
VOCABULARY = Vocabulary(CharacterTokenizer([" a", " b", " ab", "a", "b", "ab", "'", " c", "c", ",", " A", "B"]))
CHARACTERS = Vocabulary(CharacterTokenizer([" ", "a", "b", "c", "'"]))
WORDS = ["a", "ab", "abba", "b", "ba", "bab", "c", "abc", "b'a"]


def scored(model, vocabulary, tokens):
    """The score of the tokens of an utterance, its end included, and that of each."""
    state, each = torch.tensor(model.start), []
    for token in tokens:
        score, state = model.score(state, torch.tensor(token))
        each.append(float(score))
    return sum(each) + float(model.score_end(state)), each


def usual_ways(word, part):
    """The first way of a word in each case."""
    texts = {token: text for text, token in part.items()}
    ways = written_ways(word, part)
    return list({b"".join(map(texts.get, way)): way for way in reversed(ways)}.values())


@settings(max_examples=150, deadline=None)
@given(
    arpa_twins(WORDS),
    st.lists(st.sampled_from([*WORDS, "bb", "cab", "a'c"]), max_size=6),
    st.randoms(use_true_random=False),
)
def test_a_sentence_scores_what_its_words_score_in_each_case(tmp_path_factory, twin, words, choice):
    path = twin.write(tmp_path_factory.mktemp("arpa") / "some.arpa")
    model = open_language_model(path, VOCABULARY, CPU)
    (part,) = vocabulary_parts(VOCABULARY)
    ways = [choice.choice(usual_ways(word, part)) for word in words]

    total, _ = scored(model, VOCABULARY, [token for way in ways for token in way])

    assert total == pytest.approx(twin.sentence(words), abs=2e-5)


@settings(max_examples=50, deadline=None)
@given(arpa_twins(WORDS), st.lists(st.sampled_from([*WORDS, "bb"]), min_size=1, max_size=5))
def test_where_labels_are_characters_an_utterance_begins_without_a_space(tmp_path_factory, twin, words):
    model = open_language_model(twin.write(tmp_path_factory.mktemp("arpa") / "some.arpa"), CHARACTERS, CPU)
    labels = {label: token for token, label in enumerate(CHARACTERS.pieces)}

    totals = [scored(model, CHARACTERS, [labels[one] for one in " ".join(said)])[0] for said in (words, ["a"])]

    assert totals[0] - totals[1] == pytest.approx(twin.sentence(words) - twin.sentence(["a"]), abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(arpa_twins(WORDS), st.integers(0, 2**31))
def test_many_states_are_answered_as_each_alone(tmp_path_factory, twin, seed):
    model = open_language_model(twin.write(tmp_path_factory.mktemp("arpa") / "some.arpa"), VOCABULARY, CPU)
    random = torch.Generator().manual_seed(seed)
    states = torch.randint(len(model.backoffs), (2, 3, 1), generator=random)
    tokens = torch.randint(len(VOCABULARY.pieces), (2, 1, 4), generator=random)

    scores, after = model.score(states, tokens)

    for row, column, token in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
        alone = model.score(states[row, column, 0], tokens[row, 0, token])
        assert alone == (scores[row, column, token], after[row, column, token])


def test_a_token_gains_by_all_words_that_begin_with_it_after_the_words_before(tmp_path):
    twin = normalized([["ab", "abba"], ["ab", "abc"], ["ab", "c"], ["b", "ba"]])
    model = open_language_model(twin.write(tmp_path / "some.arpa"), VOCABULARY, CPU)
    ab, a, b, also_ab = 2, 0, 4, 5

    _, each = scored(model, VOCABULARY, [ab, ab, b])

    begin = ["ab", "abba", "abc"]
    after_ab = sum(math.exp(twin.score((START, "ab"), word)) for word in begin)
    after_start = sum(math.exp(twin.score((START,), word)) for word in begin)
    # The second gains by what begins after "ab", and first the word before it is complete.
    complete = math.exp(twin.score((START,), "ab")) / after_start
    abba = math.exp(twin.score((START, "ab"), "abba"))
    assert each == pytest.approx([math.log(after_start), math.log(complete * after_ab), math.log(abba / after_ab)])
    # Divided otherwise than in training, it is looked up without the words before.
    otherwise = twin.ngrams[START,][1] + twin.ngrams["ab",][0]
    total = otherwise * math.log(10) + twin.score(("ab",), END)
    assert scored(model, VOCABULARY, [a, b])[0] == pytest.approx(total)
    assert scored(model, VOCABULARY, [a, b, also_ab])[0] < -1


def test_marks_that_no_word_has_say_nothing_and_words_are_found_in_other_case(tmp_path):
    twin = ArpaTwin({(word,): (-number, 0.0) for number, word in enumerate(("AB", "C", START, END, UNKNOWN), 1)})
    model = open_language_model(twin.write(tmp_path / "some.arpa"), VOCABULARY, CPU)
    comma, capital = 9, [10, 11]

    plain, _ = scored(model, VOCABULARY, [2, 7])

    assert plain == pytest.approx(-math.log(10) * (1 + 2 + 4))
    total, each = scored(model, VOCABULARY, [2, comma, 7, comma])
    assert (total, each[1]) == (pytest.approx(plain), 0)
    assert scored(model, VOCABULARY, [*capital, 7])[0] == pytest.approx(plain)
    assert model.has_text.tolist() == [token != comma and token != 6 for token in range(14)]


def test_a_file_of_tokens_is_read_as_one_also_as_nemo_writes_them(tmp_path):
    pieces = ("<unk>", "▁a", "▁b", "b")
    vocabulary = Vocabulary(CharacterTokenizer(pieces))
    ngrams = {(piece,): (-number, -0.5) for number, piece in enumerate((*pieces[:3], START, END), 1)}
    ngrams |= {("▁a", "▁b"): (-0.25, 0.0), (START, "▁a"): (-0.125, 0.0)}
    as_nemo = {piece: chr(100 + token) for token, piece in enumerate(pieces)}
    for number, names in enumerate(({}, as_nemo)):
        twin = ArpaTwin({tuple(names.get(word, word) for word in words): one for words, one in ngrams.items()})
        model = open_language_model(twin.write(tmp_path / f"{number}.arpa"), vocabulary, CPU)

        _, each = scored(model, vocabulary, [1, 2, 3])

        assert each == pytest.approx([-math.log(10) * one for one in (0.125, 0.25, (1 if not names else 5) + 0.5)])


def test_comments_say_weight_and_bonus_and_a_file_may_be_compressed(tmp_path):
    twin = normalized([["a", "b"]])
    plain = twin.write(tmp_path / "plain.arpa")
    path = twin.write(tmp_path / "some.arpa", comments=["# made by hand", "# weight 0.4", "# bonus 0"])
    path.write_bytes(gzip.compress(path.read_bytes()))

    said, default = open_language_model(path, VOCABULARY, CPU), open_language_model(plain, VOCABULARY, CPU)

    assert (said.weight, said.bonus) == (0.4, 0.0)
    assert (default.weight, default.bonus) == (0.25, 0.75)
    assert scored(said, VOCABULARY, [0, 1]) == scored(default, VOCABULARY, [0, 1])


GOOD = {(word,): (-1.0, 0.0) for word in ("a", "b", START, END)} | {("a", "b"): (-0.5, 0.0)}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace("\\end\\", ""),
        lambda text: text.replace("ngram 2=1", "ngram 2=2"),
        lambda text: text.replace("ngram 2=1", "ngram 2=x"),
        lambda text: text.replace("\\2-grams", "\\3-grams"),
        lambda text: text.replace("-0.5", "nan"),
        lambda text: text.replace("-0.5", "half"),
        lambda text: text.replace("-0.5\ta b", "-0.5\ta b c d"),
        lambda text: text.replace("-0.5\ta b", "-0.5\ta zebra"),
        lambda text: text.replace("-1.0\tb", "-1.0\ta"),
        lambda text: text.replace("-1.0\tb", "-1.0\t\udc80"),
        lambda text: text.replace("ngram 2=1", "ngram 2=2").replace("-0.5\ta b", "-0.5\ta b\n-0.6\ta b"),
        lambda text: text.replace("ngram 2=1", "ngram 2=1\nngram 3=1").replace("\\end", "\\3-grams:\n-1 b a b\n\\end"),
        lambda text: text.replace("ngram 2=1", "ngram 2=1\nngram 3=1").replace("\\end", "\\3-grams:\n-1 a b b\n\\end"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, damage):
    path = ArpaTwin(GOOD).write(tmp_path / "some.arpa")
    assert open_language_model(path, VOCABULARY, CPU).ngrams == 6  # with the unknown word

    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError):
        open_language_model(path, VOCABULARY, CPU)
    path.write_bytes(gzip.compress(ArpaTwin(GOOD).write(path).read_bytes())[:-12])
    with pytest.raises(CheckpointError):
        open_language_model(path, VOCABULARY, CPU)


def test_words_that_a_model_cannot_write_are_of_another_model(tmp_path):
    ngrams = {(word,): (-1.0, 0.0) for word in ("ж", "щ", START, END)}

    with pytest.raises(CheckpointError, match="words that this model can write"):
        open_language_model(ArpaTwin(ngrams).write(tmp_path / "some.arpa"), VOCABULARY, CPU)


@pytest.mark.parametrize("name", ["fastconformer-ctc-bpe", "fastconformer-tdt-bpe", "fastconformer-rnnt-bpe"])
def test_models_of_each_kind_are_searched_with_words(tmp_path, name):
    folder = golden.GOLDEN / name
    noise = torch.randn(48000, generator=torch.Generator().manual_seed(1)).numpy()
    path = ArpaTwin({(word,): (-one, 0.0) for word, one in (("the", 0.01), (START, 99), (END, 2), (UNKNOWN, 6))})
    path = path.write(tmp_path / "some.arpa", comments=["# weight 200"])

    (plain,) = load_model(folder / "model.nemo", device="cpu").transcribe([noise])
    (said,) = load_model(folder / "model.nemo", device="cpu", language_model=path).transcribe([noise])

    assert said.text != plain.text
