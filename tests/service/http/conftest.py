"""What several tests of HTTP need."""

from itertools import pairwise

import numpy as np
import pytest

from audio.segment.cuts import CutBlock
from audio.segment.segmenter import Segment
from service.dispatch import cut_recording
from tests.service.serving import tone


@pytest.fixture
def cut_as(monkeypatch):
    """Cuts every long recording into pieces of this many samples, and returns one of as many."""

    def cut(*lengths: int) -> np.ndarray:
        ends = np.cumsum((0, *lengths)).tolist()
        block = CutBlock([Segment(start, stop) for start, stop in pairwise(ends)], np.full(400, 0.3, np.float32))
        monkeypatch.setattr(cut_recording, "cuts", lambda recording, detector, rule: iter([block]))
        return tone(sum(lengths))

    return cut
