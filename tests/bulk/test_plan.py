"""Shards hold every recording once, with others of its length."""

from hypothesis import given
from hypothesis import strategies as st

from bulk.entries import Entry
from bulk.plan import shards

LENGTHS = st.lists(st.floats(0.1, 10_000), max_size=60)


def listed(lengths):
    return [Entry(f"{number}.wav", f"/archive/{number}.wav", seconds) for number, seconds in enumerate(lengths)]


@given(LENGTHS, st.floats(0.1, 20_000), st.randoms())
def test_every_recording_is_in_one_shard_whatever_their_order(lengths, seconds, chosen):
    entries = listed(lengths)
    shuffled = chosen.sample(entries, len(entries))

    planned = shards(shuffled, seconds)

    assert sorted(entry.location for shard in planned for entry in shard.entries) == sorted(
        entry.location for entry in entries
    )
    assert [shard.number for shard in planned] == list(range(len(planned)))
    assert planned == shards(entries, seconds)


@given(LENGTHS, st.floats(0.1, 20_000))
def test_the_longest_go_first_and_shards_are_as_long_as_asked_for(lengths, seconds):
    planned = shards(listed(lengths), seconds)

    ordered = [entry.seconds for shard in planned for entry in shard.entries]
    assert ordered == sorted(lengths, reverse=True)
    for shard in planned[:-1]:
        held = [entry.seconds for entry in shard.entries]
        assert sum(held) >= seconds
        assert sum(held[:-1]) < seconds
