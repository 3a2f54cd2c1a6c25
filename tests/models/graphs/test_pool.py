"""Graphs share memory as long as torch accepts another one there."""

from itertools import count

import pytest
import torch

from models.graphs.pool import Pool


class Graph:
    """Stands for one of torch."""


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", count().__next__)
    return Pool()


def test_graphs_share_memory_until_all_are_gone(pool):
    handles, graphs = [], [Graph(), Graph()]
    for graph in graphs:
        handles.append(pool.handle)
        pool.add(graph)
    del graph

    graphs.pop()
    handles.append(pool.handle)
    graphs.pop()

    assert handles == [0, 0, 0]
    assert pool.handle == 1


def test_after_a_failed_capture_graphs_share_other_memory(pool, monkeypatch):
    first, later, ended = Graph(), Graph(), []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *of: ended.append(of), raising=False)
    assert pool.handle == 0
    pool.add(first)

    pool.leave()

    assert ended == [(2, 0)]
    assert pool.handle == 1
    pool.add(later)
    assert pool.handle == 1
