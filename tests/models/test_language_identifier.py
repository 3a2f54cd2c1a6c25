"""Language identifiers agree with NeMo; padding and company change nothing; labels become languages."""

import numpy as np
import pytest
import torch

from models import CheckpointError, load_identifier, load_model
from models.device.host_copy import HostCopy
from models.language_identifier import PendingProbabilities
from tests.conftest import GOLDEN
from tests.models import golden_data as golden

IDENTIFIERS = ("identifier-attention", "identifier-statistics")
SCORES_FROM_FEATURES = 1e-4
PROBABILITIES_FROM_AUDIO = 1e-4

every_identifier = pytest.mark.parametrize("name", IDENTIFIERS)


def identifier(name, dtype=torch.float32):
    return load_identifier(GOLDEN / name / "model.nemo", dtype=dtype)


def recorded(name, clip_name):
    """What NeMo computes, with the languages of labels."""
    languages = {"iw": "he", "zh-CN": "zh"}
    facts = golden.facts(name)
    told = zip(facts["labels"], facts["clips"][clip_name]["probabilities"], strict=True)
    return {languages.get(label, label): probability for label, probability in told}


@every_identifier
@pytest.mark.golden
def test_probabilities_are_nemos(name):
    model = identifier(name)

    for clip_name, found in zip(golden.CLIPS, model.identify(golden.clips()), strict=True):
        assert found == pytest.approx(recorded(name, clip_name), abs=PROBABILITIES_FROM_AUDIO)


@pytest.mark.golden
def test_scores_are_nemos_from_the_same_features():
    name, network = "identifier-statistics", identifier("identifier-statistics").network

    for clip_name in golden.CLIPS:
        features = golden.tensors("variant-local-attention")[f"alone/{clip_name}/features"]
        length = golden.facts("variant-local-attention")["clips"][clip_name]["alone"]["feature_length"]
        scores = network(features[None], torch.tensor([length]))[0]
        assert scores.tolist() == pytest.approx(
            golden.facts(name)["clips"][clip_name]["logits"], abs=SCORES_FROM_FEATURES
        )


@every_identifier
def test_a_batch_changes_nothing(name):
    model = identifier(name)
    alone = model.identify(golden.clips())

    waveforms, lengths = model.batch(golden.clips(), 16_000 * 13)
    for row, length in zip(waveforms, lengths.tolist(), strict=True):
        row[length:] = 0.7
    together = model.launch(waveforms, lengths).probabilities()

    for one, other in zip(alone, together, strict=True):
        assert other == pytest.approx(one, abs=1e-5)


@every_identifier
@pytest.mark.parametrize("samples", [0, 1, 159, 160, 320])
def test_hardly_any_audio_has_probabilities_too(name, samples):
    (found,) = identifier(name).identify([np.full(samples, 0.1, np.float32)])

    assert sum(found.values()) == pytest.approx(1.0)
    assert min(found.values()) >= 0


def test_in_bfloat16_the_same_languages_are_found():
    rounded = identifier("identifier-statistics", torch.bfloat16).identify(golden.clips())

    for clip_name, found in zip(golden.CLIPS, rounded, strict=True):
        expected = recorded("identifier-statistics", clip_name)
        assert max(found, key=found.get) == max(expected, key=expected.get)


def test_labels_of_one_language_are_added_up():
    labelled = HostCopy(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))

    (found,) = PendingProbabilities(labelled, ["de", "en", "en", "zh"]).probabilities()

    assert found == pytest.approx({"de": 0.1, "en": 0.5, "zh": 0.4})


def test_info_describes_it():
    info = identifier("identifier-statistics").info()

    assert (info["family"], info["class"]) == ("language identifier", "EncDecSpeakerLabelModel")
    assert info["languages"] == ["ceb", "de", "en", "fr", "he", "zh"]
    assert info["parameters"] > 1000


def test_a_model_of_the_other_kind_is_refused_in_one_line():
    with pytest.raises(CheckpointError, match="EncDecSpeakerLabelModel, which language identifiers are"):
        load_identifier(GOLDEN / "canary-small" / "model.nemo")
    with pytest.raises(CheckpointError, match="transcribes nothing; one that identifies languages"):
        load_model(GOLDEN / "identifier-statistics" / "model.nemo")


def test_a_folder_without_an_archive_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"no \.nemo file"):
        load_identifier(tmp_path)
