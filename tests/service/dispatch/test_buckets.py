from hypothesis import given
from hypothesis import strategies as st

from service.dispatch.batcher import bucket_edges, pick_bucket


@given(st.floats(0.1, 7200), st.floats(0, 1))
def test_an_utterance_lies_in_the_smallest_bucket_that_holds_it(longest, share):
    edges = bucket_edges(longest)
    seconds = longest * share

    index = pick_bucket(seconds, edges)

    assert edges == sorted(set(edges))
    assert edges[-1] == longest
    assert seconds <= edges[index]
    assert index == 0 or seconds > edges[index - 1]
