"""The benchmark of an overload computes its figures from the answers."""

from benchmarks.overload import Measured, Outcome, retry_after_ratios


def test_a_retry_after_is_compared_with_the_wait_of_the_next_accepted_request():
    accepted = [Outcome(0.0, 10.0, 200, None), Outcome(5.0, 20.0, 200, None)]
    refused = [Outcome(1.0, 0.01, 503, 40.0), Outcome(-1.0, 0.01, 503, 10.0), Outcome(9.0, 0.01, 503, 7.0)]

    assert retry_after_ratios(refused, accepted) == [1.0, 2.0]  # no request was accepted after the last


def test_goodput_is_of_what_was_answered_within_the_load_once_it_has_settled():
    outcomes = [Outcome(100.0, 5.0, 200, None), Outcome(101.0, 15.0, 200, None), Outcome(119.0, 30.0, 200, None)]

    report = Measured(outcomes, [], [], 100.0, 20.0).report(audio_seconds=8.0, settle=10.0)

    assert report["goodput_rtfx"] == 8.0 / 10.0
    assert report["statuses"] == {"200": 3}
