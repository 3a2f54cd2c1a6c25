"""The process that transcribes beside the service is noticed when it ends."""

from argparse import Namespace

import pytest

from benchmarks.served import _offline


def test_a_process_without_its_model_ends_the_benchmark(tmp_path):
    args = Namespace(model=str(tmp_path / "none.nemo"), threads=1, batch_seconds=None, device="cpu")

    with _offline(args, []) as offline:
        assert offline.poll(60)
        with pytest.raises(EOFError):
            offline.recv()
