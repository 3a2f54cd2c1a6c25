import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.dispatch.batcher import Batcher, Turns
from service.dispatch.utterance import Part, Utterance
from tests.service.dispatch.test_batcher import LANE, Answer, Queue


def waiting(caller: str, turn: int) -> Utterance:
    return Utterance(1, Part(np.empty(0, np.float32), LANE, caller), 1.0, 0.0, Answer(), turn)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 10.0), st.booleans()), max_size=60))
def test_callers_have_turns_as_if_all_that_wait_were_looked_at(steps):
    """Compares with a count that looks at all utterances each time."""
    turns, queue, current, used = Turns(10.0), [], 0, {}  # used: a caller's next turn, and seconds of it
    for caller, seconds, comes in steps:
        if comes:
            turn, already = used.get(caller, (current, 0.0))
            turn, already = (turn, already) if turn >= current else (current, 0.0)
            queue.append(waiting(caller, turns.take(caller, seconds)))
            turns.add(queue[-1])
            assert queue[-1].turn == turn
            more, left = divmod(already + seconds, 10.0)
            used[caller] = turn + int(more), left
        elif queue:
            turns.remove(queue.pop(int(seconds) % len(queue)))
        turns.update()
        current = min((one.turn for one in queue), default=current)
        callers = {one.part.caller for one in queue}
        used = {one: (turn, left) for one, (turn, left) in used.items() if one in callers or (queue and turn > current)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.1, 30.0), min_size=2, max_size=8), st.integers(2, 4))
def test_callers_that_all_have_work_get_the_same_share_to_within_two_turns(lengths, callers):
    """For any lengths of the first caller's pieces, no caller gets ahead of another by more than two turns of audio."""
    queue = Queue(Batcher([10.0, 30.0]))
    for caller in range(callers):
        for seconds in lengths * 3 if caller == 0 else [5.0] * int(sum(lengths) * 3 / 5):
            queue.add(seconds, caller=f"caller {caller}")
    served = {f"caller {caller}": 0.0 for caller in range(callers)}

    while served.keys() == {utterance.part.caller for utterance in queue.batcher}:
        for utterance in queue.next(now=0.0, batch_seconds=0.1, MAX_PASSED_OVER=10**6):
            served[utterance.part.caller] += utterance.seconds
        assert max(served.values()) - min(served.values()) <= 60.0


def test_an_upload_that_comes_while_hours_wait_lets_at_most_the_rest_of_a_turn_pass():
    queue = Queue(Batcher([10.0, 30.0]))
    for number in range(200):
        queue.add(25.0, arrived=0.001 * number, caller="two hours")
    for step in range(5):
        queue.next(now=float(step), batch_seconds=30.0)

    short = queue.add(3.0, arrived=5.0, caller="short")

    assert short in [queue.next(now=6.0 + step, batch_seconds=30.0)[0] for step in range(2)]


def test_batches_are_full_although_one_caller_has_all_the_work():
    queue = Queue(Batcher([10.0, 30.0]))
    for _ in range(12):
        queue.add(25.0, caller="alone")

    assert len(queue.next(batch_seconds=300.0)) == 12


def test_a_caller_with_hours_of_work_is_not_kept_waiting_by_a_stream_of_others():
    queue = Queue(Batcher([10.0, 30.0]))
    for _ in range(20):
        queue.add(25.0, caller="hours")
    led = 0

    for step in range(60):
        queue.add(1.0, arrived=float(step), caller=f"upload {step}")
        led += queue.next(now=float(step), batch_seconds=1.0, MAX_PASSED_OVER=8)[0].part.caller == "hours"

    assert led >= 6
