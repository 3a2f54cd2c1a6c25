import itertools

from hypothesis import given
from hypothesis import strategies as st

from service.dispatch.batcher import DEFAULT_EDGES, bucket_edges, pick_bucket


@given(st.floats(0.1, 7200), st.floats(0, 1))
def test_an_utterance_lies_in_the_smallest_bucket_that_holds_it(longest, share):
    edges = bucket_edges(longest)
    seconds = longest * share

    index = pick_bucket(seconds, edges)

    assert seconds <= edges[index]
    assert index == 0 or seconds > edges[index - 1]


@given(st.floats(0.1, 7200))
def test_the_last_bucket_ends_at_the_longest_utterance(longest):
    edges = bucket_edges(longest)

    assert edges[-1] == longest
    assert edges == sorted(set(edges))


def test_default_buckets_waste_little():
    """Utterances spread evenly over a bucket and padded to its edge pad (1 - low / high) / 2."""
    wide = [edge for edge in DEFAULT_EDGES if edge >= 2]

    shares = [(1 - low / high) / 2 for low, high in itertools.pairwise(wide)]

    assert max(shares) < 0.17
