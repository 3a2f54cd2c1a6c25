"""Detokenizing a batch at once gives what detokenizing each utterance by itself gives."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.search.result import FlatRows
from models.text.detokenizer import Detokenizer
from models.text.tokenizers import (
    AggregateTokenizer,
    ByteFallbackTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    Vocabulary,
)
from tests.models.checkpoint.nemo_files import TOKENIZER, golden_members

GOLDEN = SentencePieceTokenizer(golden_members()[TOKENIZER])
PIECES = ("<unk>", "▁the", "▁a", "s", "fer", "ry", ".", ",", "▁", "'", "▁.", "-", "<0xC3>", "<0xA9>", "<0x41>", "<s>")
UNSPACED = (
    *("<unk>", "▁今天", "今天", "你", "好", "，", "。", "スーパー", "ー", "っと"),
    *("▁", "▁gpu", "gpu", "s", "ที่", "นี่", "ี", "<0xE4>", "<0xBD>"),
)
VOCABULARIES = {
    "sentencepiece": Vocabulary(GOLDEN),
    "bpe": Vocabulary(ByteFallbackTokenizer(PIECES, special=(0, 15))),
    "aggregate": Vocabulary(AggregateTokenizer([GOLDEN, GOLDEN])),
    "characters": Vocabulary(CharacterTokenizer([" ", *"abcde", "'", ".", "?", "é"])),
    "unspaced": Vocabulary(ByteFallbackTokenizer(UNSPACED, special=(0,))),
    "unspaced characters": Vocabulary(CharacterTokenizer([" ", *"今天你好，。スーパっที่นี่ab", "g"])),
}


def seconds(frame):
    return frame * 0.01 * 8


def flat(rows, durations, confidence):
    """Some rows of (token, frame, duration) as a search returns them."""
    tokens, frames, lengths = (np.array([one[at] for row in rows for one in row], np.int32) for at in range(3))
    counts = np.array([len(row) for row in rows], np.int64)
    return FlatRows(
        counts=counts,
        bounds=np.concatenate(([0], np.cumsum(counts))),
        tokens=tokens,
        frames=frames,
        ends=frames + lengths,
        durations=lengths if durations else None,
        confidence=np.array(confidence[: len(tokens)], np.float32),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", VOCABULARIES)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), decoder=st.sampled_from(["ctc", "rnnt", "tdt"]))
def test_a_batch_is_detokenized_as_each_of_its_utterances_is_alone(kind, data, decoder):
    vocabulary = VOCABULARIES[kind]
    token = st.tuples(st.integers(0, len(vocabulary.pieces) - 1), st.integers(0, 2000), st.integers(1, 4))
    rows = data.draw(st.lists(st.lists(token, max_size=12), max_size=6))
    confidence = data.draw(st.lists(st.floats(0, 1, width=32), min_size=72, max_size=72))
    lengths = data.draw(st.lists(st.floats(0, 200), min_size=len(rows), max_size=len(rows)))
    batch = flat(rows, decoder == "tdt", confidence)
    detokenizer = Detokenizer(vocabulary, seconds, is_ctc=decoder == "ctc")

    assert list(detokenizer(batch, lengths)) == detokenizer.one_by_one(batch, lengths)


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe", "characters", "aggregate", "unspaced"])
def test_ordinary_tokens_are_detokenized_without_a_loop_over_utterances(kind, monkeypatch):
    vocabulary = VOCABULARIES[kind]
    ascii_only = kind != "unspaced"
    usual = [
        token
        for token, piece in enumerate(vocabulary.pieces)
        if piece[-1:].isalpha() and (piece[-1:].isascii() or not ascii_only)
    ]
    assert len(usual) >= 5
    batch = flat([[(token, 5, 1) for token in usual], [(usual[0], 7, 2)]], durations=False, confidence=[0.5] * 2000)
    detokenizer = Detokenizer(vocabulary, seconds)
    wanted = detokenizer.one_by_one(batch)

    def unusual(*_):
        raise AssertionError("an utterance was detokenized alone")

    monkeypatch.setattr(Detokenizer, "_alone", unusual)
    assert list(detokenizer(batch)) == wanted


def test_a_batch_is_detokenized_in_as_many_objects_as_it_has_utterances():
    vocabulary = VOCABULARIES["bpe"]
    word = vocabulary.pieces.index("▁the")
    batch = flat([[(word, frame, 1) for frame in range(40)]] * 192, True, [0.5] * 7680)

    detokenized = Detokenizer(vocabulary, seconds)(batch)

    fields = [getattr(detokenized, field.name) for field in dataclasses.fields(detokenized)]
    objects = sum(1 if isinstance(field, bytes | None) else 1 + len(field) for field in fields)
    assert objects < 192 + 20
    assert [len(transcript.words) for transcript in detokenized] == [40] * 192
