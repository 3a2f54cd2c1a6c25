"""All forms of transducer search find what a plain loop over the frames of one utterance finds."""

from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.label_looping import label_looping
from models.heads.transducer import Joint, Predictor
from models.search.flat import flat
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.label_masks import LabelMasks
from models.search.language_model import read_language_model
from models.search.look_ahead import look_ahead
from tests.models.search.greedy_twin import greedy_alone, random_transducer
from tests.models.search.phrase_twin import PhraseTwin, in_tensors, phrase_rows
from training.language_model import write_language_model


def graphed(encoded, lengths, predictor, joint, max_symbols, masks=None, phrases=None, language_model=None, *, steps):
    """The graph driver, whose state has seen another batch before."""
    driver = GraphedLookAhead(predictor, joint, max_symbols, language_model=language_model)
    other = 3 * torch.randn(encoded.shape, dtype=encoded.dtype, generator=torch.Generator().manual_seed(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.search.drivers.graph.STEPS_A_REPLAY", steps)
        driver.search(other, torch.full_like(lengths, encoded.size(1)))
        return driver.search(encoded, lengths, masks, phrases)


def flat_by(*batch, frames, **terms):
    """Flat search with this many frames of all rows a step, which rates its labels two at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.search.flat._FRAMES_A_STEP", frames)
        patch.setattr("models.search.flat._LABELS_RATED_AT_ONCE", 2)
        return flat(*batch, **terms)


SEARCHES = {
    "flat": flat,
    "flat by a frame": partial(flat_by, frames=1),
    "flat by twenty frames": partial(flat_by, frames=20),
    "look-ahead": look_ahead,
    "look-ahead replayed": partial(graphed, steps=16),
    "look-ahead replayed four steps at a time": partial(graphed, steps=4),
    "look-ahead replayed two steps at a time": partial(graphed, steps=2),
    "look-ahead by a frame": partial(look_ahead, window=1),
    "look-ahead by three frames": partial(look_ahead, window=3),
}
DURATIONS = [(), (0, 1, 2, 3, 4), (1, 2), (0, 2, 5), (0,), (4, 0)]


@st.composite
def batches(draw):
    """A transducer, a batch of encoder frames with their lengths, and max_symbols."""
    predictor, joint = random_transducer(
        draw(st.integers(0, 2**32 - 1)),
        durations=draw(st.sampled_from(DURATIONS)),
        layers=draw(st.sampled_from([1, 2])),
        blank_bias=draw(st.sampled_from([-2.0, 0.0, 1.0, 2.0])),
        context=draw(st.sampled_from([None, None, 1, 2])),
    )
    lengths = draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
    spare = draw(st.integers(0, 2))
    encoded = 3 * torch.randn(len(lengths), max(lengths) + spare, 6, dtype=torch.float64)
    return predictor, joint, encoded, torch.tensor(lengths), draw(st.sampled_from([1, 2, 3, 10]))


@pytest.fixture(params=SEARCHES.values(), ids=SEARCHES.keys())
def search(request):
    """A form of transducer search."""
    return request.param


SENTENCES = [[0, 1, 2], [0, 1], [1, 1, 0], [2, 3, 1, 1], [2], [0, 2, 3]]


@cache
def language_model(weight):
    with TemporaryDirectory() as folder:
        path, pieces = Path(folder) / "some.ngrams", ("a", "b", "c", "d")
        write_language_model(SENTENCES, pieces, path, least=(1, 1), weight=weight, bonus=0.5)
        return read_language_model(path, pieces, torch.device("cpu"))


def added_by(model):
    """What a language model adds to a label after a text."""

    def added(text, label):
        state = torch.tensor(model.start)
        for token in text:
            _, state = model.score(state, torch.tensor(token))
        return model.weight * float(model.score(state, torch.tensor(label))[0])

    return added


@st.composite
def some_masks(draw, rows, labels):
    """The labels that each row may write: all, or those of one of two kinds."""
    table = torch.zeros(3, labels + 1)
    for kind in (1, 2):
        masked = draw(st.lists(st.booleans(), min_size=labels, max_size=labels))
        table[kind, :labels][torch.tensor(masked)] = -torch.inf
    return LabelMasks(table, torch.tensor(draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.data(), batches(), st.sampled_from(list(SEARCHES.values())), st.sampled_from([None, None, 0.0, 0.3, 2.0]))
def test_every_row_equals_the_plain_loop_in_any_company(data, batch, search, weight):
    predictor, joint, encoded, lengths, max_symbols = batch
    rows = len(lengths)
    masks = data.draw(st.none() | some_masks(rows, joint.blank))
    twins = data.draw(st.just([None] * rows) | phrase_rows(rows, labels=joint.blank))
    model = None if weight is None else language_model(weight)
    terms = {"masks": masks, "phrases": in_tensors(twins) if twins[0] else None, "language_model": model}

    found = search(encoded, lengths, predictor, joint, max_symbols, **terms).rows()

    bias = joint.output.bias.data.clone()
    for row, utterance, length, twin, index in zip(found, encoded, lengths, twins, range(rows), strict=True):
        joint.output.bias.data[: joint.blank + 1] = bias[: joint.blank + 1] + (masks.of_rows[index] if masks else 0)
        own = twin if twin and twin.phrases else None
        tokens, frames, durations, confidence = greedy_alone(
            utterance[:length], predictor, joint, max_symbols, own, added_by(model) if weight else None
        )
        assert (row.tokens, row.frames) == (tokens, frames)
        assert row.durations == (durations if joint.durations else None)
        steps = durations if joint.durations else [1] * len(frames)
        assert row.ends == [frame + step for frame, step in zip(frames, steps, strict=True)]
        assert row.confidence == pytest.approx(confidence, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(batches())
def test_the_published_label_looping_that_they_are_measured_against_finds_the_same(batch):
    predictor, joint, encoded, lengths, max_symbols = batch

    found, wanted = (
        [(row.tokens, row.frames, row.ends) for row in search(encoded, lengths, predictor, joint, max_symbols).rows()]
        for search in (label_looping, look_ahead)
    )

    assert found == wanted


def test_masks_and_phrases_come_and_go_from_batch_to_batch_in_one_state():
    predictor, joint = random_transducer(3, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
    driver = GraphedLookAhead(predictor, joint, max_symbols=3)
    encoded = 3 * torch.randn(3, 20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([20, 3, 11])
    table = torch.zeros(20, joint.blank + 1)
    table[1, :2] = table[19, 1:3] = -torch.inf
    ends_word = [True, False, True, False]
    one, other = PhraseTwin({(0, 1): 3.0, (3,): 1.0}, ends_word), PhraseTwin({(2, 2, 3): 9.0}, ends_word)
    nothing = PhraseTwin({}, ends_word)
    given = [
        (None, []),
        ([1, 0, 1], []),
        (None, [one, nothing, other]),
        ([19, 1, 0], []),
        ([1, 1, 1], [other, one, one]),
        ([0, 0, 0], []),
        (None, [one] * 3),
    ]

    every = [
        (kinds and LabelMasks(table[: max(kinds) + 1], torch.tensor(kinds)), in_tensors(twins) if twins else None)
        for kinds, twins in given
    ]
    found = [driver.search(encoded, lengths, *terms).rows() for terms in every]

    batch = encoded, lengths, predictor, joint, 3
    assert found == [look_ahead(*batch, masks, phrases=phrases).rows() for masks, phrases in every]
    assert found[0] == found[5] != found[1]
    assert found[2][0] != found[0][0]
    assert found[2][1] == found[0][1]
    assert len(driver.sizes) == 5  # with masks of two sizes or none, and with phrases with and without masks


def test_the_random_transducers_emit_wait_jump_and_run_into_max_symbols():
    """The test above would also pass for models that emit nothing."""
    seen = set()
    for seed in range(40):
        predictor, joint = random_transducer(seed, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
        tokens, frames, durations, _ = greedy_alone(3 * torch.randn(30, 6).double(), predictor, joint, max_symbols=3)
        seen |= {("token", token) for token in tokens} | {("duration", duration) for duration in durations}
        seen |= {("labels at one frame", frames.count(frame)) for frame in frames}
        ends = [frame + duration for frame, duration in zip(frames, durations, strict=True)]
        seen |= {("waits", end < frame) for end, frame in zip(ends[:-1], frames[1:], strict=True)}
    assert {("token", token) for token in range(4)} <= seen
    assert {("duration", duration) for duration in range(5)} <= seen
    assert {("labels at one frame", count) for count in (1, 2, 3)} <= seen
    assert ("waits", True) in seen


@settings(max_examples=30, deadline=None)
@given(batches(), st.sampled_from(list(SEARCHES.values())), st.sampled_from([float("nan"), float("inf"), 1e9]))
def test_what_lies_beyond_the_lengths_changes_nothing(batch, search, garbage):
    predictor, joint, encoded, lengths, max_symbols = batch
    beyond = torch.arange(encoded.size(1)) >= lengths[:, None]

    clean = search(encoded, lengths, predictor, joint, max_symbols).rows()
    dirty = search(encoded.masked_fill(beyond[..., None], garbage), lengths, predictor, joint, max_symbols).rows()

    assert dirty == clean


def scripted(table, durations=()):
    """A transducer whose logits at frame ``t`` are ``table[t]`` whatever was emitted, and its encoder frames."""
    logits = torch.tensor(table, dtype=torch.float32)
    frames, classes = logits.shape
    labels = classes - 1 - len(durations)
    predictor, joint = Predictor(labels, 3, 1), Joint(frames, 3, frames, labels, durations)
    with torch.no_grad():
        for parameter in joint.parameters():
            parameter.zero_()
        joint.encoder_projection.weight.copy_(torch.eye(frames))
        joint.output.weight.copy_(logits.T)
    return predictor, joint, torch.eye(frames)[None]


# Columns: a, b, blank.
A, B, WAIT = [5, 0, 0], [0, 5, 0], [0, 0, 5]


def test_an_rnnt_repeats_a_label_until_max_symbols_ends_the_frame(search):
    predictor, joint, encoded = scripted([WAIT, A, WAIT, B])

    [row] = search(encoded, torch.tensor([4]), predictor, joint, max_symbols=2).rows()

    assert row.tokens == [0, 0, 1, 1]
    assert row.frames == [1, 1, 3, 3]
    assert row.ends == [2, 2, 4, 4]
    assert row.durations is None


def test_tdt_jumps_by_its_durations_and_a_jump_past_the_end_counts(search):
    # Durations 0, 2, 4 in the last three columns.
    zero, two, four = [5, 0, 0], [0, 5, 0], [0, 0, 5]
    never_seen = B + zero
    predictor, joint, encoded = scripted([A + two, never_seen, WAIT + zero, B + four], durations=(0, 2, 4))

    [row] = search(encoded, torch.tensor([4]), predictor, joint, max_symbols=10).rows()

    assert row.tokens == [0, 1]
    assert row.frames == [0, 3]
    assert row.durations == [2, 4]
    assert row.ends == [2, 7]


def test_tdt_counts_only_labels_that_stay_against_max_symbols(search):
    zero, one = [5, 0], [0, 5]
    predictor, joint, encoded = scripted([A + zero, B + one, WAIT + one], durations=(0, 1))

    [row] = search(encoded, torch.tensor([3]), predictor, joint, max_symbols=3).rows()

    assert row.tokens == [0, 0, 0, 1]
    assert row.frames == [0, 0, 0, 1]


def test_the_lowest_index_wins_a_tie(search):
    predictor, joint, encoded = scripted([[1, 1, 1, 2, 2]], durations=(1, 3))

    [row] = search(encoded, torch.tensor([1]), predictor, joint, max_symbols=10).rows()

    assert (row.tokens, row.durations) == ([0], [1])


def test_confidence_is_the_share_among_labels_and_blank_without_durations(search):
    predictor, joint, encoded = scripted([[2, 1, 0, 9, 0]], durations=(1, 3))

    [row] = search(encoded, torch.tensor([1]), predictor, joint, max_symbols=10).rows()

    assert row.confidence == pytest.approx([0.66524096])


@pytest.mark.parametrize("durations", [(), (0, 1)])
def test_logits_that_are_not_numbers_end_the_search_at_max_symbols(search, durations):
    predictor, joint = random_transducer(0, durations=durations)
    encoded = torch.full((2, 5, 6), float("nan"), dtype=torch.float64)

    result = search(encoded, torch.tensor([5, 3]), predictor, joint, max_symbols=4)

    assert all(len(row.tokens) <= 4 * frames for row, frames in zip(result.rows(), (5, 3), strict=True))


def test_an_utterance_without_frames_has_no_tokens(search):
    predictor, joint = random_transducer(0)

    nothing = search(torch.zeros(2, 0, 6).double(), torch.tensor([0, 0]), predictor, joint, max_symbols=10)
    nobody = search(torch.zeros(0, 7, 6).double(), torch.zeros(0).long(), predictor, joint, max_symbols=10)

    assert [row.tokens for row in nothing.rows()] == [[], []]
    assert nobody.rows() == []


def test_bfloat16_models_choose_among_their_own_logits(search):
    predictor, joint, encoded = scripted([WAIT, A, WAIT, B])

    result = search(encoded.bfloat16(), torch.tensor([4]), predictor.bfloat16(), joint.bfloat16(), max_symbols=1)

    assert result.rows()[0].tokens == [0, 1]


def test_sizes_are_few_and_a_result_is_the_callers_own():
    predictor, joint = random_transducer(3, durations=(0, 1, 2, 3, 4), blank_bias=1.0)
    driver = GraphedLookAhead(predictor, joint, max_symbols=3)
    encoded = 3 * torch.randn(7, 20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([20, 3, 11, 0, 20, 7, 1])

    first = driver.search(encoded, lengths)
    before = first.rows()
    for rows in (5, 6, 7):
        driver.search(encoded.flip(1)[:rows], lengths[:rows])

    assert first.rows() == before == look_ahead(encoded, lengths, predictor, joint, 3).rows()
    assert len(driver.sizes) == 1
    driver.search(encoded[:1], lengths[:1])
    assert len(driver.sizes) == 2


def test_where_nothing_can_be_captured_the_host_drives_and_the_log_says_so_once(monkeypatch, caplog):
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: operation not supported")

    monkeypatch.setattr("models.search.graphed_look_ahead.GraphDriver", refuse)
    predictor, joint = random_transducer(3, blank_bias=1.0)
    encoded = torch.randn(2, 9, 6, dtype=torch.float64)
    driver, lengths = GraphedLookAhead(predictor, joint, max_symbols=3), torch.tensor([9, 4])

    for _ in range(2):
        found = driver.search(encoded, lengths).rows()

    assert found == look_ahead(encoded, lengths, predictor, joint, 3).rows()
    assert [record.message for record in caplog.records] == [
        "no CUDA graph of this size, the host will launch every operation: CUDA error: operation not supported"
    ]
