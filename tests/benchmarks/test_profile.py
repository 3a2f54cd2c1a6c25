"""The times of a call's operations add up, and operations are counted by call."""

import pytest
import torch

from benchmarks.profile import Spent, largest, spent_on


def test_the_operations_of_a_call_are_counted_the_largest_first():
    one = torch.randn(300, 300)

    spent = spent_on(lambda: one @ one @ one + 1, repeats=4, device=torch.device("cpu"))

    times = {each.operation: each.times for each in spent}
    assert times["aten::mm"] == 2
    assert times["aten::add"] == 1
    assert [each.seconds for each in spent] == sorted((each.seconds for each in spent), reverse=True)


@pytest.mark.parametrize(
    ("count", "names"), [(1, ["a", "2 others"]), (2, ["a", "b", "1 others"]), (3, ["a", "b", "c"])]
)
def test_what_has_no_row_of_its_own_is_summed_up(count, names):
    spent = [Spent("a", 3.0, 1), Spent("b", 2.0, 5), Spent("c", 1.0, 10)]

    rows = largest(spent, count)

    assert [row.operation for row in rows] == names
    assert sum(row.seconds for row in rows) == 6.0
    assert sum(row.times for row in rows) == 16


def test_a_profiler_that_saw_nothing_says_so():
    with pytest.raises(RuntimeError, match="saw nothing"):
        spent_on(lambda: None, repeats=1, device=torch.device("cpu"))
