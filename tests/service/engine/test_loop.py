"""The device does not wait: while it computes, the next batch is copied and the one before detokenized."""

import os
import socket
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from audio.descriptor import unnamed_file
from benchmarks.stub_engine import StubRecognizer, transcript
from service.channel import BlockingChannel
from service.engine.loop import Collated, Loop, Recognized
from service.engine.protocol import (
    Batch,
    Failure,
    FailureKind,
    Load,
    Ready,
    Result,
    Stop,
    from_engine,
    to_engine,
)
from service.shared_audio import ArenaView, Item
from transcripts.prompt import DEFAULT_PROMPT

PATIENCE = 30.0
UNLUCKY, POISON = 8, 9
SAMPLES = np.arange(10, dtype=np.float32)


class Gates:
    """Events by name: a step reports that it began, and waits until the test lets it go on."""

    def __init__(self):
        began = "collated 2", "recognized 1", "recognized 2", "recognized 3", "awaited 1", "awaited 2", "wrote 1"
        self.began = {name: threading.Event() for name in began}
        self.may_go_on = {name: threading.Event() for name in ("recognized 1", "awaited 1", "awaited 2", "wrote 1")}

    def reach(self, name):
        self.began[name].set() if name in self.began else None
        if name in self.may_go_on:
            assert self.may_go_on[name].wait(PATIENCE)


class Slow(StubRecognizer):
    """Counts its batches, and stops where a gate is shut."""

    def __init__(self, load, on_download):
        super().__init__(load, on_download)
        self.gates, self.received, self.recognized = Gates(), 0, 0
        self.fails_to_collate = False
        self.asked_about_errors = []

    def collate(self, utterances):
        self.received += 1
        if self.fails_to_collate:
            raise MemoryError("no room to collate it")
        self.gates.reach(f"collated {self.received}")
        return Collated((self.received, [samples.copy() for samples in utterances]), 1.0)

    def recognize(self, collated, prompts, decoder):
        number, utterances = collated.batch
        self.gates.reach(f"recognized {number}")
        batch = SlowBatch(self.gates, number, utterances)
        return Recognized(batch.wait, batch.answers)

    def kind_of(self, error):
        self.asked_about_errors.append(threading.current_thread())
        return super().kind_of(error)


@dataclass
class SlowBatch:
    """Is done when its gate opens, or fails there with UNLUCKY or POISON samples."""

    gates: Gates
    number: int
    utterances: list

    def wait(self):
        self.gates.reach(f"awaited {self.number}")
        if any(len(samples) == POISON for samples in self.utterances):
            raise ConnectionResetError("it showed late that the device is poisoned")
        if any(len(samples) == UNLUCKY for samples in self.utterances):
            raise ArithmeticError("it showed late that the batch failed")

    def answers(self):
        self.gates.reach(f"wrote {self.number}")
        return [transcript(samples) for samples in self.utterances]


class Engine:
    """A loop in a thread of this process, with a real socket and real memory between it and the test."""

    def __init__(self):
        self.now = 100.0
        self.descriptor = unnamed_file()
        os.write(self.descriptor, SAMPLES.tobytes())
        front, engine = socket.socketpair()
        self.front = BlockingChannel(front, from_engine)
        self.heard = self.front.messages()
        self.recognizer = None
        loop = Loop(
            BlockingChannel(engine, to_engine), ArenaView(self.descriptor), self._load, self.now, lambda: self.now
        )
        self.thread = threading.Thread(target=lambda: self._run(loop, engine))
        self.status = None
        self.thread.start()
        self.front.send(Load("m", "m", "cpu", "auto", [1.0], None, None))
        assert isinstance(self.next(), Ready)

    def _load(self, load, on_download):
        self.recognizer = Slow(load, on_download)
        return self.recognizer

    def _run(self, loop, engine):
        self.status = loop.run()
        engine.close()

    def next(self):
        return next(self.heard)

    def ask(self, number):
        self.front.send(Batch(number, "m", None, [DEFAULT_PROMPT], items=[Item(0, number)]))

    def open_gates(self):
        for gate in self.recognizer.gates.may_go_on.values():
            gate.set()

    def stop(self):
        self.front.send(Stop())
        self.thread.join(PATIENCE)
        return self.status


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.open_gates()
    assert engine.stop() == 0
    os.close(engine.descriptor)


def test_a_batch_is_copied_while_another_is_recognized_and_a_third_is_detokenized(engine):
    gates = engine.recognizer.gates
    engine.ask(1)
    engine.ask(2)

    assert gates.began["recognized 1"].wait(PATIENCE)
    assert gates.began["collated 2"].wait(PATIENCE)  # while 1 is launched
    gates.may_go_on["recognized 1"].set()
    assert gates.began["awaited 1"].wait(PATIENCE)
    assert gates.began["recognized 2"].wait(PATIENCE)  # while the device has 1
    gates.may_go_on["awaited 1"].set()
    assert gates.began["wrote 1"].wait(PATIENCE)
    engine.ask(3)
    assert gates.began["recognized 3"].wait(PATIENCE)  # while 1 is detokenized
    for gate in ("wrote 1", "awaited 2"):
        gates.may_go_on[gate].set()

    answers = [engine.next() for _ in range(3)]
    assert [answer.number for answer in answers] == [1, 2, 3]
    assert [answer.answers for answer in answers] == [[transcript(SAMPLES[:number])] for number in (1, 2, 3)]


def test_a_batch_takes_the_time_since_the_device_was_done_with_the_one_before(engine):
    gates = engine.recognizer.gates
    gates.may_go_on["wrote 1"].set()
    engine.ask(1)
    engine.ask(2)

    assert gates.began["recognized 1"].wait(PATIENCE)
    gates.may_go_on["recognized 1"].set()
    assert gates.began["recognized 2"].wait(PATIENCE)  # launched at 100, as 1 was
    engine.now = 105.0
    gates.may_go_on["awaited 1"].set()
    assert gates.began["awaited 2"].wait(PATIENCE)
    engine.now = 107.0
    gates.may_go_on["awaited 2"].set()

    assert [engine.next().infer_seconds for _ in range(2)] == [5.0, 2.0]


def test_an_error_that_shows_late_fails_its_batch_alone(engine):
    engine.open_gates()
    for number in (1, UNLUCKY, 2):
        engine.ask(number)

    answers = {answer.number: answer for answer in (engine.next() for _ in range(3))}
    assert isinstance(answers[1], Result)
    assert answers[UNLUCKY] == Failure(
        UNLUCKY, FailureKind.BATCH, "ArithmeticError: it showed late that the batch failed"
    )
    assert isinstance(answers[2], Result)
    # Asking may wait for the device, which CUDA forbids to all threads while one captures a graph.
    assert engine.recognizer.asked_about_errors == [engine.thread]


def test_a_lost_device_that_shows_late_ends_the_engine():
    engine = Engine()
    engine.open_gates()
    engine.ask(POISON)

    failure = engine.next()

    assert (failure.number, failure.kind) == (POISON, FailureKind.DEVICE)
    engine.thread.join(PATIENCE)
    assert engine.status == 1
    os.close(engine.descriptor)


def test_a_batch_that_cannot_be_copied_fails_alone(engine):
    engine.open_gates()
    engine.recognizer.fails_to_collate = True
    engine.ask(1)
    failure = engine.next()
    engine.recognizer.fails_to_collate = False
    engine.ask(2)

    assert failure == Failure(1, FailureKind.BATCH, "MemoryError: no room to collate it")
    assert isinstance(engine.next(), Result)


def test_batches_sent_before_the_stop_are_answered_before_the_end(engine):
    engine.open_gates()
    for number in (1, 2, 3):
        engine.ask(number)

    assert engine.stop() == 0
    assert [engine.next().number for _ in range(3)] == [1, 2, 3]
