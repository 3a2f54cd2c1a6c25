"""The greedy search of an attention decoder: each row by itself, bounded, and never for ever."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import AttentionDecoderConfig
from models.search.attention import GreedyWriting, length_bound
from models.search.drivers.eager import repeat

END, LABELS = 3, 30
PROMPT = [4, 5]


class ScriptedDecoder:
    """Writes a script for each row, whatever it reads; what is past the labels scores highest."""

    vocabulary_size = LABELS

    def __init__(self, scripts):
        self.scripts = scripts
        self.read = []

    def cache(self, batch, capacity):
        self.capacity = capacity

    def __call__(self, tokens, positions, memory, cache):
        assert positions.max() < self.capacity
        self.read.append(tokens.clone())
        logits = torch.zeros(*tokens.shape, LABELS + 2)
        logits[..., LABELS:] = 100.0
        place = int(positions[-1]) - len(PROMPT) + 1
        if place >= 0:
            for row, script in enumerate(self.scripts):
                logits[row, -1, script[place] if place < len(script) else END] = 50.0
        return logits


def search(scripts, limits):
    decoder, prompts = ScriptedDecoder(scripts), torch.tensor([PROMPT] * len(scripts))
    writing = GreedyWriting(decoder, None, prompts, max(limits), END)
    writing.restart(prompts, torch.tensor(limits))
    steps = repeat(GreedyWriting.step, writing)
    rows = writing.result(columns=min(steps, writing.capacity)).rows()
    for _ in range(5 if writing.capacity else 0):  # as a graph does behind the last token
        writing.step()
    assert writing.result(columns=min(steps, writing.capacity)).rows() == rows
    return [row.tokens for row in rows], decoder, rows


def expected(script, limit):
    """The same for one row in plain Python."""
    written = []
    for token in script:
        if token == END or len(PROMPT) + len(written) >= limit:
            break
        written.append(token)
        last = written[-144:]
        if len(last) == 144 and any(last[16:] == last[16 - period : -period] for period in range(1, 17)):
            break
    return written


phrases = st.lists(st.integers(4, LABELS - 1), min_size=1, max_size=20)
scripts = st.one_of(
    st.lists(st.integers(0, LABELS - 1), max_size=40),
    st.builds(lambda start, phrase: start + phrase * 200, st.lists(st.integers(4, 20), max_size=30), phrases),
)


@given(rows=st.lists(st.tuples(scripts, st.integers(0, 250)), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_every_row_writes_its_script_up_to_its_end_its_limit_or_its_repetitions(rows):
    found, _, _ = search([script for script, _ in rows], [limit for _, limit in rows])

    assert found == [expected(script, limit) for script, limit in rows]


def test_the_decoder_reads_what_was_written():
    _, decoder, _ = search([[7, 8, 9]], [50])

    assert torch.cat(decoder.read, dim=1).tolist()[0][:5] == [*PROMPT, 7, 8, 9]


def test_confidence_is_among_the_labels_alone():
    _, _, (row,) = search([[7, 8]], [50])

    assert row.confidence == pytest.approx([1.0, 1.0])
    assert row.frames is row.ends is row.durations is None


def test_a_phrase_over_and_over_is_stopped_long_before_the_limit_and_less_is_left_alone():
    for phrase in (1, 5, 16):
        assert len(search([list(range(4, 4 + phrase)) * 500], [1000])[0][0]) == 144
    script = [7] * 128 + [8, 9] * 64 + list(range(4, 21)) * 12
    assert search([script], [1000])[0] == [script]


def config(margin):
    return AttentionDecoderConfig(16, 1, 1, 16, "relu", positions=64, length_margin=margin)


@given(
    frames=st.lists(st.integers(0, 400), min_size=1, max_size=4),
    padding=st.integers(0, 20),
    margin=st.none() | st.integers(0, 80),
)
def test_a_row_may_be_as_long_as_its_own_audio_allows(frames, padding, margin):
    columns = -(-max(frames) // 8) + padding

    bound = length_bound(config(margin), torch.tensor(frames), 8, columns)

    # NeMo's encoder reads a feature more than an utterance has, eight to a column.
    own = [64 if margin is None else min(64, -(-(count + 1) // 8) + margin) for count in frames]
    assert bound.limits.tolist() == [limit if count else 0 for limit, count in zip(own, frames, strict=True)]
    assert bound.longest >= max(bound.limits)
    assert bound.longest <= 64
