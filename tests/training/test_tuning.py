"""Released models with any heads are tuned, and stay the same while nothing is learned."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from models import load_model
from models.checkpoint import read_checkpoint
from tests.conftest import GOLDEN
from tests.models.checkpoint.nemo_files import all_members, canary_with_aligner
from tests.training.small_run import CHECKPOINT, TEXTS, finish, first_batch, log, new_run
from training.errors import RecipeError, TrainingError
from training.loader import load
from training.sampler import Position
from training.step import batch_losses, take_step
from training.student import check_tunable, start_from
from training.vocabulary import new_vocabulary

TUNABLE = ("fastconformer-ctc-bpe", "fastconformer-rnnt-bpe", "fastconformer-tdt-bpe", "hybrid-rnnt-ctc-bpe",
           "hybrid-tdt-ctc-bpe", "canary-small", "quartznet-small", "jasper-small", "variant-citrinet")  # fmt: skip


def run_from(folder, name, **changes):
    initial = str(name if isinstance(name, Path) else GOLDEN / name / "model.nemo")
    changes = {"student": None, "vocabulary": None, "initial": initial, "augmentation": {}} | changes
    return new_run(folder, **changes)


@pytest.mark.parametrize("name", TUNABLE)
def test_with_nothing_learned_a_model_keeps_its_transcripts_and_the_names_of_its_tensors(tmp_path, name):
    run_from(tmp_path, name).export(tmp_path / "same.nemo")

    found, expected = weights(tmp_path / "same.nemo"), weights(GOLDEN / name / "model.nemo")
    # A joint that was trained without dropout has its last layer one place before.
    shapes = {key.replace("joint_net.2.", "joint_net.1."): value.shape for key, value in expected.items()}
    assert {key: value.shape for key, value in found.items()} == shapes  # the tensors that NeMo wrote
    before, after = load_model(GOLDEN / name / "model.nemo"), load_model(tmp_path / "same.nemo")

    assert read_checkpoint(tmp_path / "same.nemo").config == read_checkpoint(GOLDEN / name / "model.nemo").config
    clips = [soundfile.read(path, dtype="float32")[0] for path in sorted((GOLDEN / "clips").glob("*.wav"))]
    for decoder in set(before.decoders) - {"ctc"}:  # CTC of random weights decides by a hair, which half precision is
        expected = before.transcribe(clips, decoder=decoder)
        assert [one.tokens for one in after.transcribe(clips, decoder=decoder)] == [one.tokens for one in expected]
    features, lengths = before.features(clips)
    encoded, expected = after.encode(features, lengths)[0], before.encode(features, lengths)[0]
    assert (encoded - expected).abs().max() < 0.01 * expected.abs().max()


def trained_seconds(run, folder):
    run.export(folder / "out.nemo")
    return read_checkpoint(folder / "out.nemo").config.trained_seconds


def test_a_checkpoint_has_the_longest_length_of_its_training_clips(tmp_path):
    student = new_run(tmp_path)
    longest = round(soundfile.info(GOLDEN / "clips" / "rms-6s.wav").duration, 1)

    assert trained_seconds(student, tmp_path) == longest
    assert load_model(tmp_path / "out.nemo").piece_seconds == 20.0


def test_a_tuned_checkpoint_keeps_that_length_unless_it_learned_from_longer_clips(tmp_path):
    name, long = "fastconformer-ctc-bpe", tmp_path / "long.wav"
    soundfile.write(long, np.tile(soundfile.read(GOLDEN / "clips" / "rms-6s.wav")[0], 4), 16_000)

    assert trained_seconds(run_from(tmp_path, name), tmp_path) is None
    row = {"audio": str(long), "duration": soundfile.info(long).duration, "text": "it is not in the house"}
    (tmp_path / "longer.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    run = run_from(tmp_path, name, data={"manifests": ["longer.jsonl"], "max_seconds": 60})
    assert trained_seconds(run, tmp_path) == round(soundfile.info(long).duration, 1)


def weights(path):
    with tarfile.open(path) as tar:
        content = next(tar.extractfile(member).read() for member in tar if member.name.endswith("model_weights.ckpt"))
    return torch.load(io.BytesIO(content), weights_only=True)


def test_a_tuned_model_keeps_its_window_and_mel_bands(tmp_path):
    run = run_from(tmp_path, "fastconformer-ctc-bpe")
    run.front_end.window *= 0.5
    run.front_end.mel_bank[3] = 0.0
    run.export(tmp_path / "own.nemo")

    tuned = run_from(tmp_path, tmp_path / "own.nemo")
    tuned.export(tmp_path / "tuned.nemo")

    for found in (tuned.front_end, read_checkpoint(tmp_path / "tuned.nemo")):
        assert torch.equal(found.window, run.front_end.window)
        assert torch.equal(found.mel_bank, run.front_end.mel_bank)


def test_a_tuned_canary_keeps_its_aligner(tmp_path):
    initial = canary_with_aligner(tmp_path / "initial.nemo")

    run_from(tmp_path, initial).export(tmp_path / "tuned.nemo")

    before, after = all_members(initial), all_members(tmp_path / "tuned.nemo")
    of_aligner = {name: content for name, content in before.items() if name.startswith(("timestamps_", "of_times_"))}
    assert len(of_aligner) == 3
    assert of_aligner.items() <= after.items()
    assert load_model(tmp_path / "tuned.nemo").info()["capabilities"]["word_timestamps"] is True


def test_a_tuned_canary_whose_checkpoint_is_gone_cannot_be_written(tmp_path):
    initial = canary_with_aligner(tmp_path / "initial.nemo")
    run = run_from(tmp_path, initial)
    initial.unlink()

    with pytest.raises(TrainingError, match=r"tuned.nemo cannot be written: there is no checkpoint at .*initial.nemo"):
        run.export(tmp_path / "tuned.nemo")


def german(folder):
    """Labels that no golden model has."""
    path = folder / "de.model"
    path.write_bytes(new_vocabulary([*TEXTS.values(), "es ist noch nicht im großen haus"], 30))
    return str(path)


# How each gets other labels, and the weights that go with the labels.
RELABELLED = {
    "fastconformer-tdt-bpe": ("vocabulary", {"predictor.embedding.weight", "joint.output.weight", "joint.output.bias"}),
    "hybrid-rnnt-ctc-bpe": (
        "vocabulary",
        {"ctc.projection.weight", "ctc.projection.bias", "predictor.embedding.weight", "joint.output.weight"}
        | {"joint.output.bias"},
    ),
    "canary-small": ("languages", {"attention_decoder.embedding.weight", "attention_decoder.output_bias"}),
    "quartznet-small": ("characters", {"ctc.projection.weight", "ctc.projection.bias"}),
    "variant-citrinet": ("vocabulary", {"ctc.projection.weight", "ctc.projection.bias"}),
}


@pytest.mark.parametrize("name", RELABELLED)
def test_a_released_model_learns_another_vocabulary(tmp_path, name):
    key, new = RELABELLED[name]
    labels = {"characters": " abcdefghijklmnoprstuwyß", "vocabulary": german(tmp_path)}
    labels["languages"] = [{"code": "de", "vocabulary": labels["vocabulary"]}]
    run = run_from(tmp_path, name, **{"vocabulary": None, key: labels[key]})
    kept = read_checkpoint(GOLDEN / name / "model.nemo").state
    started = {key: value.clone() for key, value in run.network.state_dict().items()}

    take_step(run, first_batch(run))
    run.export(tmp_path / "tuned.nemo")

    assert {key for key, value in started.items() if key not in new and not torch.equal(value, kept[key])} == set()
    assert all(started[key].shape != kept[key].shape for key in new)
    model = load_model(tmp_path / "tuned.nemo")
    assert model.info()["vocabulary"]["size"] == run.vocabulary.size
    assert read_checkpoint(tmp_path / "tuned.nemo").config.features.mels == run.config.features.mels
    assert any(line.startswith("weights of model.nemo kept: encoder") for line in run.survey)


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("canary-small", "vocabulary", "gets other labels by languages"),
        ("fastconformer-ctc-bpe", "languages", "gets other labels by vocabulary or characters"),
        ("hybrid-tdt-ctc-bpe", "characters", "has a vocabulary of pieces"),
    ],
)
def test_labels_of_another_kind_are_refused(tmp_path, name, labels, message):
    languages = [{"code": "de", "vocabulary": german(tmp_path)}]
    values = {"characters": "abc", "vocabulary": german(tmp_path), "languages": languages}

    with pytest.raises(RecipeError, match=message):
        run_from(tmp_path, name, **{"vocabulary": None, labels: values[labels]})


def test_a_ctc_head_with_new_labels_must_learn_them(tmp_path):
    with pytest.raises(RecipeError, match=r"objective\.ctc must be above 0"):
        run_from(tmp_path, "hybrid-tdt-ctc-bpe", vocabulary=german(tmp_path), objective={"ctc": 0})


@pytest.mark.parametrize("has_new_labels", [True, False])
def test_a_transducer_without_a_weight_may_only_stay_as_it_was_released(tmp_path, has_new_labels):
    recipe = {"objective": {"transducer": 0}} | ({"vocabulary": german(tmp_path)} if has_new_labels else {})
    if not has_new_labels:
        run_from(tmp_path, "hybrid-tdt-ctc-bpe", **recipe)
        recipe["objective"]["ctc"] = 0

    with pytest.raises(RecipeError, match=r"objective\.(ctc|transducer) must be above 0"):
        run_from(tmp_path, "hybrid-tdt-ctc-bpe", **recipe)


def test_a_model_with_a_ctc_head_alone_must_learn_from_it(tmp_path):
    with pytest.raises(RecipeError, match=r"objective\.ctc must be above 0"):
        run_from(tmp_path, "fastconformer-ctc-bpe", objective={"ctc": 0})


def test_a_ctc_head_without_a_weight_is_not_computed(tmp_path):
    run = run_from(tmp_path, "hybrid-tdt-ctc-bpe", objective={"ctc": 0})
    run.network.ctc.register_forward_pre_hook(lambda *_: pytest.fail("it is"))

    assert take_step(run, first_batch(run)).losses.keys() == {"transducer"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TUNABLE)
def test_the_loss_of_a_released_model_falls(tmp_path, name):
    run = run_from(tmp_path, name, steps=30, dropout=0.0, optimizer={"peak": 0.003, "warmup": 2})

    finish(run)

    losses = [line["loss"] for line in log(run.folder)]
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])


def statistics(run):
    state = run.network.state_dict()
    return {name: value.clone() for name, value in state.items() if "running" in name or "tracked" in name}


@pytest.mark.parametrize(("asked", "moves"), [(None, False), ("running", False), ("batch", True)])
def test_tuning_keeps_the_running_statistics_unless_asked_otherwise(tmp_path, asked, moves):
    # A learning rate that moves no weight.
    changes = {"batch_norm": asked} if asked else {}
    run = run_from(tmp_path, "fastconformer-ctc-bpe", optimizer={"peak": 1e-8, "warmup": 0}, dropout=0.0, **changes)
    before, batches = statistics(run), load(run.sampler, run.examples, Position())
    batch = next(batches)
    run.network.eval()
    heard = batch_losses(run, batch).total.item()

    learned = take_step(run, batch).loss

    after = statistics(run)
    assert any(not torch.equal(before[name], after[name]) for name in before) == moves
    assert (learned == pytest.approx(heard, rel=1e-4)) != moves
    batches.close()


def test_a_student_without_a_checkpoint_takes_the_statistics_of_its_batches(tmp_path):
    assert new_run(tmp_path).mode.batch_norm == "batch"


@pytest.mark.parametrize("matrices", [None, "muon"])
def test_a_frozen_encoder_stays_as_it_is(tmp_path, matrices):
    optimizer = {"peak": 0.003, "warmup": 0, "matrices": matrices}
    run = run_from(tmp_path, "hybrid-tdt-ctc-bpe", freeze=["encoder"], optimizer=optimizer)
    before = {name: value.clone() for name, value in run.network.state_dict().items()}

    take_step(run, first_batch(run))

    moved = {name for name, value in run.network.state_dict().items() if not torch.equal(value, before[name])}
    assert not [name for name in moved if name.startswith("encoder.")]
    assert {"ctc.projection.weight", "joint.output.weight"} <= moved


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("variant-local-attention", "encoders with attention_context"),
        ("variant-layer-norm", "encoders with convolution_norm layer_norm"),
    ],
)
def test_what_is_not_trained_here_is_refused(tmp_path, name, message):
    with pytest.raises(RecipeError, match=message):
        run_from(tmp_path, name)


def test_features_at_another_pace_are_refused_with_their_pace():
    config = read_checkpoint(CHECKPOINT).config

    with pytest.raises(RecipeError, match=r"not of 16000 Hz every 12\.5 ms"):
        check_tunable(replace(config, features=replace(config.features, hop=200)), CHECKPOINT)


@pytest.mark.parametrize(
    ("name", "head", "search", "kept"),
    [
        ("hybrid-tdt-ctc-bpe", "transducer", {"max_symbols": 5}, "kept: encoder, ctc, predictor, joint"),
        ("canary-small", "attention", {"beam": 4, "length_penalty": 1.0}, "kept: encoder, attention_decoder"),
    ],
)
def test_a_head_of_the_same_shape_keeps_its_weights_whatever_its_search_was(tmp_path, name, head, search, kept):
    run, checkpoint = run_from(tmp_path, name), read_checkpoint(GOLDEN / name / "model.nemo")
    config = replace(checkpoint.config, **{head: replace(getattr(checkpoint.config, head), **search)})

    assert start_from(run.network, replace(checkpoint, config=config), run.config, run.vocabulary) == kept
