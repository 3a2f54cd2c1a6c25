"""A GPU is warmed up with every shape that batches can have."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.graphs.passes import MOST_SECONDS
from models.graphs.sizes import frame_size, graph_rows, row_sizes
from service.dispatch.batcher import Batcher, BatchPolicy
from service.dispatch.utterance import Lane, Part, Utterance
from service.engine import process
from service.engine.protocol import Load
from transcripts.prompt import DEFAULT_PROMPT

RATE = 100
FRAME = 8  # samples
LENGTHS = [2.0, 8.0, 32.0]
LANE = Lane("m")

EDGES = st.lists(st.floats(0.05, 100.0), min_size=1, max_size=8, unique=True).map(sorted)


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


MADE: "list[ShapeModel]" = []


@dataclass
class ShapeModel:
    """Stands in for a model on a GPU: it notes the shapes that it is given, and what it prepares for them.

    A batch takes ``fixed`` seconds and ``each`` for each of its own. Usually a larger one is always faster.
    """

    device: torch.device
    clock: Clock
    precision: str = "bfloat16"
    sample_rate: int = RATE
    token_bytes: tuple[bytes, ...] = ()
    weight_bytes: int = 0
    decoders: tuple[str, ...] = ("rnnt",)
    searches: set[tuple[int, int]] = field(default_factory=set)
    graphs: set[tuple[int, int]] = field(default_factory=set)
    scripts: tuple[str, ...] = ()
    masked: set[tuple[int, int]] = field(default_factory=set)
    room: float = float("inf")
    room_with_graphs: float = float("inf")
    keeps_states: bool = False
    state: int = 0
    fixed: float = 1.0
    each: float = 0.0

    def __post_init__(self):
        MADE.append(self)

    def info(self):
        return {"family": "stub", "scripts": list(self.scripts)}

    def prepare(self, rows, samples):
        self.room = min(self.room, self.room_with_graphs)
        self.graphs |= {(most, samples) for most in graph_rows(min(rows, int(MOST_SECONDS * RATE) // samples))}
        return [rows, *(size for size in row_sizes(rows) if size < rows)]

    def batch(self, utterances, width):
        return (len(utterances), width), [len(samples) for samples in utterances]

    def recognize_batch(self, waveforms, lengths, *, decoder, prompts):
        rows, width = waveforms
        if rows * width + self.state > self.room * RATE:
            raise torch.OutOfMemoryError
        if self.keeps_states:
            self.state = max(self.state, rows * width)
        self.searches.add(self.search_size(*waveforms))
        if prompts[0].written_languages:
            self.masked.add(self.search_size(*waveforms))
        self.clock.now += self.fixed + self.each * rows * width / RATE
        return Recognized()

    def drop_sizes(self):
        self.state = 0

    @staticmethod
    def search_size(rows, width):
        return row_sizes(rows)[0], frame_size(max(1, width // FRAME))


class Recognized:
    def wait(self):
        pass


def newest() -> ShapeModel:
    """The model that was loaded last."""
    return MADE[-1]


@pytest.fixture(scope="module")
def gpu():
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(process, "time", clock)
        patch.setattr(process, "load_model", lambda _, device, *__, **___: ShapeModel(device, clock))
        patch.setattr(process, "_device", lambda _: torch.device("cuda"))
        patch.setattr(process, "_device_name", str)
        patch.setattr(process, "leave_room", lambda _: None)
        patch.setattr(torch.cuda, "synchronize", lambda _: None)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
        yield


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder for what engines measure."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def recognizer(edges, budget, threads=None, **options):
    load = Load("m", "", "cuda", "bfloat16", edges, budget, threads, **options)
    return process.SpeechRecognizer(load, lambda *_: None)


@pytest.mark.parametrize(
    ("room", "fixed", "each", "budget"),
    [
        (10_000.0, 1.0, 0.0, 1920.0),
        (1000.0, 1.0, 0.0, 513.6),
        (50.0, 1.0, 0.0, 32.1),
        (1.0, 1.0, 0.0, None),  # not even one utterance fits
        (10_000.0, 0.001, 0.001, 32.1),
        (10_000.0, 0.01, 0.001, 256.8),  # 257 of 267 ms grow with the audio; of a batch half as long, 128 of 138
        (10_000.0, 1.0, 0.01, 128.4),  # longer ones are faster, but take more than three seconds
        (10_000.0, 5.0, 0.01, 32.1),  # all take too long
    ],
)
def test_a_gpu_gets_the_least_budget_that_is_fast_enough_and_keeps_it(gpu, cache, room, fixed, each, budget):
    engine = recognizer(LENGTHS, None)
    newest().room, newest().fixed, newest().each = room, fixed, each

    steps = engine.warm_up()
    if budget is None:
        with pytest.raises(torch.OutOfMemoryError):
            list(steps)
        return
    list(steps)
    assert engine.batch_seconds == budget

    again = recognizer(LENGTHS, None)
    list(again.warm_up())
    assert again.batch_seconds == engine.batch_seconds
    assert recognizer(LENGTHS, 100.0).batch_seconds == 100.0  # what the operator says, holds


def test_a_search_of_a_model_of_several_scripts_is_warmed_up_with_masks_too(gpu, monkeypatch):
    def of_scripts(*scripts):
        monkeypatch.setattr(
            process, "load_model", lambda _, device, *__, **___: ShapeModel(device, Clock(), scripts=scripts)
        )
        engine = recognizer(LENGTHS, 100.0)
        list(engine.warm_up())
        return newest()

    assert not of_scripts("LATIN").masked
    model = of_scripts("CYRILLIC", "LATIN")
    assert model.masked == model.searches != set()


def test_a_budget_is_measured_again_with_options_that_need_more_memory(gpu, cache):
    list(recognizer(LENGTHS, None).warm_up())

    engine = recognizer(LENGTHS, None, beam=4)
    newest().room = 1000.0
    list(engine.warm_up())

    assert engine.batch_seconds <= 1000.0


def test_a_kept_budget_that_no_longer_fits_is_halved_until_it_does(gpu, cache, caplog):
    list(recognizer(LENGTHS, None).warm_up())

    engine = recognizer(LENGTHS, None)
    newest().room = 600.0  # another model was loaded meanwhile
    list(engine.warm_up())

    assert engine.batch_seconds == 480.0
    warned = [record.batch_seconds for record in caplog.records if record.levelname == "WARNING"]
    assert warned == [1920.0, 960.0]  # what did not fit
    later = recognizer(LENGTHS, None)
    list(later.warm_up())
    assert later.batch_seconds == 1920.0  # the memory may be free again
    told = recognizer(LENGTHS, 1000.0)
    newest().room = 600.0
    with pytest.raises(torch.OutOfMemoryError):  # what the operator says, holds
        list(told.warm_up())


def test_a_measured_budget_is_kept_as_it_fits_beside_the_graphs(gpu, cache, caplog):
    for start in range(2):
        engine = recognizer(LENGTHS, None)
        newest().room_with_graphs = 600.0
        caplog.clear()
        list(engine.warm_up())

        assert engine.batch_seconds == 480.0
        assert any(record.levelname == "WARNING" for record in caplog.records) is (start == 0)


def test_what_was_prepared_for_a_kept_budget_that_no_longer_fits_is_dropped(gpu, cache):
    list(recognizer(LENGTHS, None).warm_up())
    engine = recognizer(LENGTHS, None)
    newest().room, newest().keeps_states = 2200.0, True

    list(engine.warm_up())

    assert engine.batch_seconds == 960.0


def test_what_was_prepared_for_larger_budgets_than_the_one_chosen_is_dropped(gpu, cache):
    engine = recognizer(LENGTHS, None)
    newest().keeps_states = True
    newest().fixed, newest().each = 0.0, 0.01  # no budget is faster than the least

    list(engine.warm_up())

    assert newest().state <= engine.batch_seconds * RATE


def test_each_step_of_a_warm_up_runs_one_batch_with_the_threads_of_one(gpu, cache, monkeypatch):
    given_threads, ran = [], []
    monkeypatch.setattr(torch, "set_num_threads", given_threads.append)
    engine = recognizer(LENGTHS, None, 2, shared_threads=4)
    monkeypatch.setattr(newest(), "recognize_batch", lambda *batch, **_: ran.append(batch) or Recognized())
    given_threads.clear()  # of loading
    steps = engine.warm_up()

    next(steps)
    engine.share_processors(1)  # for a batch of another model
    next(steps)

    assert len(ran) == 2
    assert given_threads == [2, 4, 2]


@pytest.mark.parametrize(
    ("threads", "shared", "expected"), [(1, 4, [4, 2, 1, 1]), (2, 4, [4, 2, 2, 2]), (3, 0, []), (None, 0, [])]
)
def test_a_batch_has_the_threads_that_no_other_engine_has(gpu, monkeypatch, threads, shared, expected):
    given_threads = []
    monkeypatch.setattr(torch, "set_num_threads", given_threads.append)
    load = Load("m", "", "cuda", "bfloat16", [2.0], None, threads, shared)
    engine = process.SpeechRecognizer(load, lambda *_: None)
    given_threads.clear()  # of loading

    for engines in range(1, 5):
        engine.share_processors(engines)

    assert given_threads == expected


def batches(engine, edges, lengths):
    """Yield the samples of each batch that the front forms of utterances of such lengths, in seconds."""
    batcher = Batcher(edges)
    for number, seconds in enumerate(lengths):
        samples = np.empty(max(1, round(seconds * RATE)), np.float32)
        batcher.add(Utterance(number, Part(samples, LANE, number), len(samples) / RATE, 0.0, Nobody()))
    policy = BatchPolicy(engine.batch_seconds, engine.padded_seconds)
    while batch := batcher.next_batch(0.0, {LANE.model: policy}):
        yield [utterance.part.samples for utterance in batch]


class Nobody:
    def done(self):
        return False


@settings(max_examples=150, deadline=None)
@given(EDGES, st.floats(0.1, 400.0), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.floats(0.0, 1.0))
def test_no_batch_that_the_front_can_form_meets_a_shape_that_was_not_prepared(gpu, edges, budget, shares, spread):
    engine = recognizer(edges, budget)
    list(engine.warm_up())
    model = newest()
    warmed, graphs = set(model.searches), set(model.graphs)
    # From all about one length to all lengths there are: both fill batches to their bounds.
    lengths = [edges[-1] * (0.9 - spread * 0.9 + spread * share) for share in shares]

    for batch in batches(engine, edges, lengths):
        collated = engine.collate(batch)
        (rows, width), _ = collated.batch
        assert rows == 1 or collated.padded_seconds <= budget * (1 + 1e-9)
        assert model.search_size(rows, width) in warmed
        if rows * width <= MOST_SECONDS * RATE:
            assert any(most >= rows for most, samples in graphs if samples == width)
        engine.recognize(collated, [DEFAULT_PROMPT] * rows, None)
    assert model.searches == warmed


def test_an_utterance_made_longer_by_resampling_still_has_a_shape(gpu):
    engine = recognizer([2.0, 8.0], 100.0)

    (_, width), _ = engine.collate([np.empty(8 * RATE + 3, np.float32)]).batch

    assert width / RATE in engine.padded_seconds
