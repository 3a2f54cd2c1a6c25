"""Work in a side stream runs beside later work of the device, which waits for it only at a join."""

import pytest
import torch

from models.graphs.side_stream import SideStream

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# Clock cycles, about half a second: longer than the host takes to look.
LONG = 10**9


@pytest.mark.parametrize("has_stream", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_work_in_a_side_stream_is_ordered_between_what_precedes_it_and_what_follows_its_join(
    device, has_stream, monkeypatch
):
    monkeypatch.setattr("models.graphs.side_stream.HAS_STREAM", has_stream)
    side_stream = SideStream(torch.device(device))
    value = torch.zeros(2**20, device=device)

    for round_ in range(20):
        value.add_(1)
        with side_stream.entered():
            value.mul_(2)
        side_stream.join()
        assert round_ or value[0] == 2

    assert (value == 2.0**21 - 2).all()


@pytest.mark.gpu
def test_later_work_does_not_wait_for_the_side_stream():
    side_stream, done = SideStream(torch.device("cuda")), torch.cuda.Event()
    with side_stream.entered():
        torch.cuda._sleep(LONG)
        done.record()

    torch.ones(10, device="cuda").sum().item()

    assert not done.query()
    side_stream.join()
    torch.ones(10, device="cuda").sum().item()
    assert done.query()


@pytest.mark.parametrize(("has_stream", "made"), [(True, 1), (False, 0)])
def test_without_side_streams_no_stream_is_made(has_stream, made, monkeypatch):
    streams = []
    monkeypatch.setattr("models.graphs.side_stream.HAS_STREAM", has_stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_, **__: streams.append(1))

    SideStream(torch.device("cuda"))

    assert len(streams) == made


@pytest.mark.gpu
def test_an_error_inside_leaves_the_side_stream():
    side_stream, before = SideStream(torch.device("cuda")), torch.cuda.current_stream()

    with pytest.raises(ValueError, match="anything"), side_stream.entered():
        raise ValueError("anything")

    assert torch.cuda.current_stream() == before
