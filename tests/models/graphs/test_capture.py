"""After a capture that failed, others succeed; a GPU alone can capture."""

import pytest
import torch

from models.graphs.capture import captured
from models.graphs.side_stream import SideStream

pytestmark = pytest.mark.gpu


@pytest.fixture
def side_stream():
    return SideStream(torch.device("cuda"))


def test_a_capture_that_fails_spoils_none_that_follows(side_stream):
    device, other, before = torch.device("cuda"), torch.cuda.Stream(), torch.cuda.current_stream()
    values, kept = torch.zeros(8, device=device), []

    def without_its_end():
        if torch.cuda.is_current_stream_capturing():
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                values.add_(1)

    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"captur|904"):
            captured(without_its_end, device, side_stream.pool, side_stream)
        assert torch.cuda.current_stream() == before

    torch.zeros(2**28, dtype=torch.uint8, device=device)
    before = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before - 2**28
    kept.append(captured(lambda: values.add_(1), device, side_stream.pool, side_stream))
    kept.append(captured(lambda: values.mul_(2), device, side_stream.pool, side_stream))


def test_a_tensor_that_outlives_its_graph_does_not_prevent_the_next_one(side_stream):
    values, outliving = torch.zeros(8, device="cuda"), []

    for _ in range(2):
        captured(lambda: outliving.append(values + 1), values.device, side_stream.pool, side_stream)
