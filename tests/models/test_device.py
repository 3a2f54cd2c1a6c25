"""The golden models on a device have NeMo's transcripts; rehearsed on a CPU, run on a GPU by `make test-gpu`."""

import pytest
import torch

from models import load_model
from tests.models import canary
from tests.models import golden_data as golden

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# Of the largest value: bfloat16 keeps 8 bits, and a layer's errors add up over two layers.
BFLOAT16_ENCODER = 5e-2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "decoder"), golden.DECODERS)
def test_float32_transcripts_are_nemos_alone_and_in_a_batch(name, decoder, device):
    model = load_model(golden.GOLDEN / name / "model.nemo", device=device)

    batch = model.transcribe(golden.clips(), decoder=decoder)

    for clip_name, in_batch in zip(golden.CLIPS, batch, strict=True):
        recorded = golden.transcript(name, clip_name, decoder)
        (alone,) = model.transcribe([golden.clip(clip_name)], decoder=decoder)
        for hypothesis in (alone, in_batch):
            assert hypothesis.tokens == recorded["tokens"]
            assert hypothesis.frames == recorded.get("first_frames", recorded["timestep"])
            assert hypothesis.durations == recorded.get("durations")
            assert hypothesis.text == recorded["text"]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_language_model_finds_the_same_texts_alone_and_in_a_batch(device):
    clips = golden.clips()

    model = load_model("bundled", device=device)
    batch = model.transcribe(clips)

    assert [hypothesis.tokens for hypothesis in batch] == [model.transcribe([clip])[0].tokens for clip in clips]
    assert [hypothesis.text for hypothesis in batch] == [one.text for one in load_model("bundled").transcribe(clips)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", canary.PROMPTS)
def test_float32_texts_of_an_attention_decoder_are_nemos(name, device):
    model = load_model(golden.GOLDEN / canary.NAME / "model.nemo", device=device)

    batch = model.transcribe(golden.clips(), **canary.options(canary.PROMPTS[name]))

    for clip_name, hypothesis in zip(golden.CLIPS, batch, strict=True):
        recorded = canary.transcript(clip_name, name)
        assert (hypothesis.tokens, hypothesis.text) == (recorded["tokens"], recorded["text"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", golden.STEADY)
def test_bfloat16_encodes_close_to_float32(name, device):
    exact = golden.model(name)
    rounded = load_model(golden.GOLDEN / name / "model.nemo", device=device, dtype=torch.bfloat16)

    features, lengths = exact.features(golden.clips())
    wanted, frames = exact.encode(features, lengths)
    encoded, device_frames = rounded.encode(features, lengths)

    assert encoded.dtype == torch.bfloat16
    assert device_frames.tolist() == frames.tolist()
    assert (encoded.float().cpu() - wanted).abs().max() < BFLOAT16_ENCODER * wanted.abs().max()


@pytest.mark.parametrize("device", DEVICES)
def test_garbage_in_the_padding_changes_nothing(device):
    model = load_model(golden.GOLDEN / "hybrid-tdt-ctc-bpe" / "model.nemo", device=device)
    clips = [torch.from_numpy(golden.clip(name).copy()) for name in golden.CLIPS]
    lengths = torch.tensor([len(clip) for clip in clips])
    waveforms = torch.full((len(clips), int(lengths.max()) + 5000), float("nan"))
    for row, clip in zip(waveforms, clips, strict=True):
        row[: len(clip)] = clip

    texts = [hypothesis.text for hypothesis in model.recognize_batch(waveforms, lengths).transcripts()]

    assert texts == [golden.transcript("hybrid-tdt-ctc-bpe", name, "tdt")["text"] for name in golden.CLIPS]
