"""The models agree with NeMo, alone and in a padded batch."""

import numpy as np
import pytest
import torch

from tests.models import golden_data as golden
from tests.models.companions import padded

pytestmark = pytest.mark.golden

every_model = pytest.mark.parametrize("name", golden.MODELS)
every_ctc = pytest.mark.parametrize("name", [name for name, decoder in golden.DECODERS if decoder == "ctc"])
every_transducer = pytest.mark.parametrize(
    ("name", "decoder"), [(name, decoder) for name, decoder in golden.DECODERS if decoder != "ctc"]
)
every_decoder = pytest.mark.parametrize(("name", "decoder"), golden.DECODERS)
# What variants say is random, and with SentencePiece full of <unk> and control pieces, which NeMo counts as words.
WORDED = [(name, decoder) for name, decoder in golden.DECODERS if not name.startswith("variant")]
every_ctc_of_words = pytest.mark.parametrize("name", [name for name, decoder in WORDED if decoder == "ctc"])


def encode_alone(model, clip_name):
    encoded, lengths = model.encode(*model.features([golden.clip(clip_name)]))
    return encoded[0, : lengths[0]]


def log_probabilities(model, encoded):
    return model.model.network.ctc(encoded).log_softmax(-1)


def runs(head):
    """The first frame and the end of each token's run of equal labels, from NeMo's record of a CTC head."""
    voiced = set(head["timestep"])
    for token, frame in enumerate(head["first_frames"]):
        later = head["first_frames"][token + 1 :]
        end = frame + 1
        while end in voiced and end not in later[:1]:
            end += 1
        yield frame, end


@pytest.mark.slow
@every_model
def test_features_agree_alone_and_in_a_batch(name):
    model = golden.model(name)
    names = golden.clips_with_features(name)
    batch, lengths = model.features([golden.clip(clip_name) for clip_name in names])

    for row, clip_name in enumerate(names):
        recorded = golden.recorded_features(name, clip_name)
        alone, (length,) = model.features([golden.clip(clip_name)])
        for features in (alone[0, :, :length], batch[row, :, : lengths[row]]):
            assert features.shape == recorded.shape
            difference = (features - recorded).abs()
            assert difference.max() < golden.FEATURES_LARGEST
            assert difference.mean() < golden.FEATURES_MEAN


@every_model
@pytest.mark.parametrize("extra_columns", [0, 1], ids=["exact", "one column wider"])
def test_encoder_agrees_closely_on_recorded_features(name, extra_columns):
    model = golden.model(name)

    for clip_name in golden.clips_with_features(name):
        features = golden.recorded_features(name, clip_name)
        recorded = golden.recorded_encoder(name, clip_name)
        wider = torch.nn.functional.pad(features, (0, extra_columns), value=7.0)
        encoded, lengths = model.encode(wider[None], torch.tensor([features.size(1)]))
        assert lengths.tolist() == [len(recorded)]
        difference = (encoded[0, : lengths[0]] - recorded).abs().max()
        assert difference < golden.ENCODER_FROM_FEATURES * golden.largest(recorded)


@every_model
def test_encoder_agrees_from_audio_alone_and_in_a_batch(name):
    model = golden.model(name)
    batch, lengths = model.encode(*model.features(golden.clips()))

    for row, clip_name in enumerate(golden.CLIPS):
        recorded = golden.recorded_encoder(name, clip_name)
        for encoded in (encode_alone(model, clip_name), batch[row, : lengths[row]]):
            assert encoded.shape == recorded.shape
            assert (encoded - recorded).abs().max() < golden.encoder_bound(recorded, clip_name)


@every_ctc
def test_log_probabilities_agree(name):
    model = golden.model(name)

    for clip_name in golden.CLIPS:
        recorded = golden.tensors(name)[f"alone/{clip_name}/logprobs"]
        features = golden.recorded_features(name, clip_name)
        encoded, (length,) = model.encode(features[None], torch.tensor([features.size(1)]))
        from_features = encoded[0, :length]
        from_audio = encode_alone(model, clip_name)
        assert (log_probabilities(model, from_features) - recorded).abs().max() < (
            golden.LOG_PROBABILITIES_FROM_FEATURES
        )
        assert (log_probabilities(model, from_audio) - recorded).abs().max() < golden.LOG_PROBABILITIES_FROM_AUDIO


@every_decoder
@pytest.mark.parametrize("device", golden.DEVICES)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "batch"])
def test_transcripts_are_equal(name, decoder, together, device):
    model = golden.model(name, device)
    if together:
        hypotheses = model.transcribe(golden.clips(), decoder=decoder)
    else:
        hypotheses = [model.transcribe([samples], decoder=decoder)[0] for samples in golden.clips()]

    for clip_name, hypothesis in zip(golden.CLIPS, hypotheses, strict=True):
        recorded = golden.transcript(name, clip_name, decoder)
        assert hypothesis.tokens == recorded["tokens"]
        assert hypothesis.frames == recorded.get("first_frames", recorded["timestep"])
        assert hypothesis.durations == recorded.get("durations")
        assert hypothesis.text == recorded["text"]


@pytest.mark.parametrize("device", golden.DEVICES)
def test_garbage_in_the_padding_changes_nothing(device):
    model = golden.model("hybrid-tdt-ctc-bpe", device)

    found = model.recognize_batch(*padded(golden.clips(), 5000, float("nan"))).transcripts()

    wanted = [golden.transcript("hybrid-tdt-ctc-bpe", name, "tdt")["text"] for name in golden.CLIPS]
    assert [hypothesis.text for hypothesis in found] == wanted


@every_transducer
def test_transducer_words_have_nemos_times_within_the_clip(name, decoder):
    model = golden.model(name)

    for clip_name, hypothesis in zip(golden.CLIPS, model.transcribe(golden.clips(), decoder=decoder), strict=True):
        recorded = golden.transcript(name, clip_name, decoder)["word_timestamps"]
        seconds = len(golden.clip(clip_name)) / model.sample_rate
        assert [(word.text, word.start, word.end) for word in hypothesis.words] == [
            (word["word"], word["start"], min(word["end"], seconds)) for word in recorded
        ]


@every_ctc_of_words
def test_ctc_words_are_nemos_and_begin_with_their_first_frame(name):
    model = golden.model(name)

    for clip_name, hypothesis in zip(golden.CLIPS, model.transcribe(golden.clips(), decoder="ctc"), strict=True):
        recorded = golden.transcript(name, clip_name, "ctc")
        spans = list(runs(recorded))
        assert [word.text for word in hypothesis.words] == [
            word["word"].strip() for word in recorded["word_timestamps"]
        ]
        for word in hypothesis.words:
            np.testing.assert_allclose(word.start, spans[word.token_span[0]][0] * model.seconds_per_frame)
            assert word.start < word.end
