"""Batches that follow each other without a wait have the transcripts that each has alone; rehearsed on a CPU."""

import pytest
import torch

from models import load_model
from models.graphs.device_loop import has_loops
from tests.models import golden_data as golden
from tests.models.no_waiting import no_waiting

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DECODERS = [("hybrid-tdt-ctc-bpe", "tdt"), ("hybrid-tdt-ctc-bpe", "ctc"), ("hybrid-rnnt-ctc-bpe", "rnnt"),
            ("jasper-small", "ctc"), ("canary-small", "aed")]  # fmt: skip


def batches(model):
    clips = [golden.clip(name) for name in golden.CLIPS]
    return [model.model.batch(some) for some in (clips, clips[:1], clips[::-1], clips[1:3], clips)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_batches_begun_before_the_last_is_fetched_have_the_transcripts_they_have_alone(name, decoder, device):
    model = load_model(golden.GOLDEN / name / "model.nemo", device=device)
    inputs = batches(model)
    model.model.prepare(len(golden.CLIPS), inputs[0][0].size(1))
    alone = [model.recognize_batch(*batch, decoder=decoder).transcripts() for batch in inputs]

    given = [model.recognize_batch(*batch, decoder=decoder) for batch in inputs]

    assert [[one.tokens for one in recognition.transcripts()] for recognition in given] == [
        [one.tokens for one in hypotheses] for hypotheses in alone
    ]
    assert any(one.tokens for one in alone[0])


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_sizes_that_are_dropped_give_all_memory_back_and_are_captured_again(name, decoder):
    model = load_model(golden.GOLDEN / name / "model.nemo", device="cuda")
    inputs = batches(model)
    reserved = []
    for _ in range(3):  # libraries take their workspaces in the first
        for waveforms, lengths in inputs:
            model.model.prepare(*waveforms.shape)
            model.recognize_batch(waveforms, lengths, decoder=decoder).transcripts()
        torch.cuda.empty_cache()
        with_graphs = torch.cuda.memory_reserved()
        assert sum(states["captured"] for states in model.model.graphs().values()) > 0

        model.model.drop_sizes()
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())

        assert reserved[-1] < with_graphs
        assert sum(states["captured"] for states in model.model.graphs().values()) == 0
    assert reserved[1] == reserved[2]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_the_host_does_not_wait_for_the_device_from_samples_to_tokens(name, decoder):
    assert has_loops(torch.device("cuda")), "this driver has no WHILE nodes"
    model = load_model(golden.GOLDEN / name / "model.nemo", device="cuda")
    inputs = batches(model)
    for batch in inputs:
        model.recognize_batch(*batch, decoder=decoder).transcripts()
    with no_waiting():
        given = [model.recognize_batch(*batch, decoder=decoder) for batch in inputs]

    assert all(recognition.transcripts() for recognition in given)
