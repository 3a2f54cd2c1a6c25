"""A CTC model finds the times of words that another model wrote."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import load_model
from models.text.aligner import Aligner, KnownWords
from models.text.tokenizers import CharacterTokenizer, Vocabulary
from tests.conftest import GOLDEN
from tests.models import golden_data as golden
from tests.models.checkpoint.nemo_files import canary_with_aligner

SECONDS = 0.08
CTC = GOLDEN / "fastconformer-ctc-bpe" / "model.nemo"
CANARY = GOLDEN / "canary-small" / "model.nemo"


@cache
def subwords():
    return load_model(CTC).model.vocabulary


def vocabulary_of(labels):
    return Vocabulary(CharacterTokenizer(labels))


def aligner(vocabulary):
    return Aligner(vocabulary, len(vocabulary.pieces), lambda frames: frames * SECONDS)


def scores(path, vocabulary, sure=0.9):
    """Log probabilities with one token a frame, or the blank where that is None."""
    labels = len(vocabulary.pieces)
    found = torch.full((len(path), labels + 1), (1 - sure) / labels)
    for frame, token in enumerate(path):
        found[frame, labels if token is None else token] = sure
    return found.log()


WORDS = st.lists(st.tuples(st.text("etaoinshr", min_size=1, max_size=6), st.integers(1, 4)), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=3))
def test_alone_or_in_a_batch_words_begin_with_their_first_piece_and_end_before_the_next(utterances):
    vocabulary, found = subwords(), aligner(subwords())
    batch, begins = [], []
    for utterance in utterances:
        path, begun = [None], []
        for word, pause in utterance:
            begun.append(len(path))
            for token in found.encode(word):
                path += [token, None]
            path += [None] * pause
        begins.append([frame * SECONDS for frame in begun])
        batch.append(KnownWords([word for word, _ in utterance], scores(path, vocabulary), len(path) * SECONDS))

    together = found.times(batch)

    for spans, begun, said in zip(together, begins, batch, strict=True):
        assert [start for start, _ in spans] == pytest.approx(begun)
        times = [time for span in spans for time in span]
        assert times == sorted(times)
        assert times[-1] <= said.seconds + 1e-6
        assert found.times([said]) == [spans]


def test_what_the_vocabulary_lacks_is_left_out_of_a_word():
    vocabulary = vocabulary_of([" ", "'", *"abcdefghijklmnopqrstuvwxyz"])
    encode = aligner(vocabulary).encode

    texts = ["".join(vocabulary.pieces[token] for token in encode(word)) for word in ("It's,", "(Über)", "naïve", "42")]

    assert [text.strip() for text in texts] == ["it's", "ber", "nave", ""]


def test_a_word_without_labels_lies_between_its_neighbours():
    vocabulary = vocabulary_of([" ", *"abc"])
    path = [1, None, None, None, None, None, 0, 3, None, None]

    (spans,) = aligner(vocabulary).times([KnownWords(["a", "42", "c", "7"], scores(path, vocabulary), 0.8)])

    assert spans[0] == pytest.approx((0.0, 0.15))
    assert spans[1] == pytest.approx((0.15, 7 * SECONDS))
    assert spans[2] == pytest.approx((7 * SECONDS, 7 * SECONDS + 0.15))
    assert spans[3] == pytest.approx((7 * SECONDS + 0.15, 0.8))


@pytest.mark.parametrize("frames", [0, 4])
def test_a_text_that_has_no_room_in_its_utterance_has_no_times(frames):
    vocabulary = vocabulary_of([" ", *"abc"])

    spans = aligner(vocabulary).times(
        [
            KnownWords(["aab"], torch.zeros(frames, 5), 0.1),
            KnownWords(["a"], scores([1], vocabulary), 0.08),
            KnownWords([], scores([None], vocabulary), 0.08),
        ]
    )

    assert spans[0] == ([(None, None)] if frames < 4 else [(0.0, 0.1)])
    assert spans[1:] == [[(0.0, 0.08)], []]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return load_model(canary_with_aligner(tmp_path_factory.mktemp("aligned") / "canary.nemo"))


def times_of(hypothesis):
    return [(word.start, word.end) for word in hypothesis.words]


def test_a_canary_with_an_aligner_writes_its_text_and_the_times_that_the_aligner_finds(packed):
    plain, ctc, clips = load_model(CANARY), load_model(CTC), golden.clips()

    found = packed.transcribe(clips, timestamps=True)

    assert packed.info()["capabilities"]["word_timestamps"] is True
    assert packed.weight_bytes > plain.weight_bytes + ctc.weight_bytes / 2
    for samples, hypothesis, untimed in zip(clips, found, plain.transcribe(clips), strict=True):
        assert (hypothesis.text, hypothesis.tokens) == (untimed.text, untimed.tokens)
        words = [[word.text for word in hypothesis.words]]
        (spans,) = ctc.model.align_batch(torch.tensor(samples)[None], torch.tensor([len(samples)]), words)
        assert times_of(hypothesis) == spans
    assert any(start is not None for hypothesis in found for start, _ in times_of(hypothesis))


@pytest.mark.parametrize("asked", [{}, {"timestamps": True, "language": "en", "target_language": "de"}])
def test_words_have_no_times_in_a_translation_or_if_none_are_asked_for(packed, asked):
    for hypothesis in packed.transcribe(golden.clips()[:3], **asked):
        assert set(times_of(hypothesis)) <= {(None, None)}


def test_an_aligner_can_be_named(packed):
    named = load_model(CANARY, aligner=CTC)

    expected = packed.transcribe(golden.clips(), timestamps=True)

    assert list(map(times_of, named.transcribe(golden.clips(), timestamps=True))) == list(map(times_of, expected))


def test_an_aligner_without_a_ctc_decoder_is_refused():
    with pytest.raises(ValueError, match="CTC decoder"):
        load_model(CANARY, aligner=GOLDEN / "fastconformer-rnnt-bpe" / "model.nemo")


def test_a_model_with_times_of_its_own_needs_no_aligner():
    assert load_model(CTC, aligner=CTC).weight_bytes == load_model(CTC).weight_bytes


@pytest.mark.teacher
def test_a_trained_model_aligns_its_own_words_where_it_found_them(teacher):
    model = load_model(teacher)
    samples = golden.clip("slt-12s")
    (heard,) = model.transcribe([samples])

    words = [[f"{word.text.capitalize()}," for word in heard.words]]  # as models with punctuation write
    (spans,) = model.model.align_batch(torch.tensor(samples)[None], torch.tensor([len(samples)]), words)

    assert len(spans) > 10
    for word, span in zip(heard.words, spans, strict=True):
        assert span == pytest.approx((word.start, word.end), abs=2.1 * model.seconds_per_frame)
