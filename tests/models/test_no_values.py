"""From samples to packed tokens no value of the device is read, and no tensor of the host is mixed with its tensors.

Needs no GPU: tensors of torch's meta device have shapes and no values, so that reading one is an error. Graphs and
streams, which only a GPU has, are tested in test_recognition.py.
"""

from contextlib import nullcontext

import pytest
import torch

from models import load_model
from models.search.drivers.graph import GraphDriver
from models.search.flat import flat
from tests.models import golden_data as golden
from tests.models.test_recognition import DECODERS

META = torch.device("meta")
VARIANTS = ["variant-local-attention", "variant-global-token", "variant-layer-norm"]
MODELS = [*DECODERS, *((name, "ctc") for name in VARIANTS), ("quartznet-small", "ctc")]


@pytest.fixture(autouse=True)
def on_meta(monkeypatch):
    """The meta device has no autocast; the flag of a driver is what a host without loops may wait for."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())

    def say_nothing(driver):
        driver._seen.zero_()

    monkeypatch.setattr(GraphDriver, "_copy_flag", say_nothing)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "decoder"), MODELS)
def test_a_batch_is_recognised_without_a_look_at_its_values(name, decoder):
    model = load_model(golden.GOLDEN / name / "model.nemo", device=META, dtype=torch.bfloat16)
    waveforms, lengths = model.model.batch(golden.clips())

    unprepared = model.recognize_batch(waveforms, lengths, decoder=decoder)
    model.model.prepare(*waveforms.shape)
    prepared = model.recognize_batch(waveforms, lengths, decoder=decoder)

    assert model.model.graphs()["encoder"]["captured"] > 0
    for recognition in (unprepared, prepared):
        assert recognition._fetched._packed.tensor().device == META
        assert len(recognition._fetched._packed.tensor()) == len(golden.CLIPS)


def test_a_batch_with_a_language_model_is_recognised_without_a_look_at_its_values():
    model = load_model("bundled", device=META, dtype=torch.bfloat16)
    waveforms, lengths = model.model.batch(golden.clips())

    recognition = model.recognize_batch(waveforms, lengths)

    assert model.model.graphs()["ctc_beam"] == {"captured": 1, "refused": 0, "no_room": 0}
    assert recognition._fetched._packed.tensor().device == META


def test_a_search_that_the_host_drives_does_ask():
    model = load_model(golden.GOLDEN / "hybrid-tdt-ctc-bpe" / "model.nemo", device=META)
    network = model.model.network
    frames, lengths, _ = model.model.passes.works[0](
        *(tensor.to(META) for tensor in model.model.batch(golden.clips())), None
    )

    with pytest.raises(RuntimeError, match="meta"):
        flat(frames, lengths, network.predictor, network.joint, max_symbols=3)
