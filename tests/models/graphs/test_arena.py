"""Tensors of states in an arena: apart from each other, at the same place for ever, and in the memory of others."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from models.graphs.arena import Arena, Layout

LAYOUTS = st.builds(
    Layout,
    st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]),
)
STATES = st.lists(st.lists(LAYOUTS, min_size=1, max_size=6), min_size=1, max_size=6)


@given(STATES)
def test_the_tensors_of_a_state_are_apart_and_stay_where_they_are(states):
    arena = Arena(torch.device("cpu"))
    places = []
    for state in states:
        growth, before = arena.growth(state), arena.bytes
        tensors = arena.tensors(state)
        assert arena.bytes == before + growth
        assert [(tuple(tensor.shape), tensor.dtype) for tensor in tensors] == state
        for number, tensor in enumerate(tensors):
            tensor.fill_(number)
        assert all(bool((tensor == number).all()) for number, tensor in enumerate(tensors))
        places.append([tensor.data_ptr() for tensor in tensors])

    for state, known in zip(states, places, strict=True):
        assert arena.growth(state) == 0
        assert [tensor.data_ptr() for tensor in arena.tensors(state)] == known


def test_a_larger_state_adds_only_what_the_others_do_not_have():
    arena, row = Arena(torch.device("meta")), Layout((1024,), torch.uint8)

    added = []
    for rows in (4, 3, 10, 1, 12):
        added.append(arena.growth([row] * rows))
        arena.tensors([row] * rows)

    assert added == [4096, 0, 6144, 0, 2048]
    assert arena.bytes == 12 * 1024
