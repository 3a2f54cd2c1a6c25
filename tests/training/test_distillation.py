"""A student learns a teacher's function, module by module and then chained, whatever its depth and width."""

import json
from dataclasses import replace

import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

import cli
from models import load_model
from models.checkpoint import read_checkpoint
from models.encoders.padding import Padding
from models.network import Network
from tests.conftest import GOLDEN
from tests.training.small_run import CHECKPOINT, CPU, finish, log, manifest, new_run, recipe_file
from tests.training.test_ranks import steps, together
from training.distillation import distance, distillation_losses, groups, posterior_loss
from training.errors import RecipeError, TrainingError
from training.layer_states import input_frames, layer_states
from training.recipe_file import read_recipe
from training.schedule import rate_of_step
from training.student import StudentNetwork
from training.teacher import TeacherModel, read_teacher

STUDENT = {"layers": 2, "width": 64, "heads": 4, "subsampling_channels": 8}
COMPOSITION = {"lengths": [2, 3], "speeds": [0.9, 1.1]}
TEACHER = {
    "checkpoint": str(CHECKPOINT),
    "apart": {"steps": 6, "peak": 0.004},
    "composition": COMPOSITION,
}


def distilled(**changes):
    """Changes of a recipe that learns from a teacher."""
    own = {"teacher": TEACHER, "student": STUDENT, "vocabulary": None, "batches": {"seconds": 6}, "dropout": 0.0}
    return own | {"steps": 12, "save_every": 4, "report_every": 100} | changes


def trained(run, **options):
    finish(run, **options)
    return [(line["step"], line["loss"], line["states"], line["posteriors"]) for line in log(run.folder)]


@pytest.mark.golden
def test_transcripts_that_the_vocabulary_cannot_write_do_not_matter_to_a_teacher(tmp_path):
    manifest(tmp_path, {"espeak-2s": "\u043f\u0440\u0438\u0432\u0435\u0442"})

    run = new_run(tmp_path, **distilled())

    assert not any(line.startswith("transcripts") for line in run.survey)


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_layer_of_both_is_in_one_group_in_order_and_no_group_has_several_of_both(student, teacher):
    found = groups(student, teacher)

    assert [layer for own, _ in found for layer in own] == list(range(student))
    assert [layer for _, other in found for layer in other] == list(range(teacher))
    assert all(min(len(own), len(other)) == 1 for own, other in found)


@pytest.mark.parametrize("name", ["fastconformer-ctc-bpe", "hybrid-tdt-ctc-bpe", "variant-local-attention"])
def test_the_states_lead_to_what_the_encoder_itself_returns(name):
    checkpoint = read_teacher(GOLDEN / name / "model.nemo")
    network = Network(checkpoint.config).eval()
    network.load_state_dict(checkpoint.state)
    network.fold()
    encoder = network.encoder
    features = torch.randn(2, checkpoint.config.features.mels, 160)
    lengths = torch.tensor([160, 160])

    with torch.no_grad():
        frames, counts, positions = input_frames(encoder, features, lengths)
        for layer in encoder.layers:
            states = layer_states(layer, frames, positions, Padding(counts, frames.size(1)))
            frames = states.output
        lesson = TeacherModel(checkpoint, CPU, "float32").teach(features, lengths)

    torch.testing.assert_close(frames, encoder(features, lengths)[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(lesson.layers[-1].output, frames, atol=1e-4, rtol=1e-4)
    assert torch.allclose(lesson.log_probabilities.exp().sum(dim=-1), torch.ones(()))


@pytest.mark.parametrize("apart", [True, False])
def test_a_teacher_that_is_its_own_student_has_nothing_to_learn(tmp_path, apart):
    run = new_run(tmp_path, **distilled())
    state = {name: value.float() for name, value in read_checkpoint(CHECKPOINT).state.items()}
    config = read_checkpoint(CHECKPOINT).config
    network = StudentNetwork(config, 0.0, 0, config.encoder)
    network.load_state_dict(state)
    network.eval()
    features = torch.randn(2, 80, 160)
    lengths = torch.tensor([160, 160])

    lesson = run.teacher.teach(features, lengths)
    recipe = replace(run.recipe.teacher, apart=replace(run.recipe.teacher.apart, noise=0.0))
    found = distillation_losses(network, features, lengths, lesson, recipe, apart=apart)

    assert found.parts["states"].item() < 1e-6
    assert found.parts["posteriors"].item() < 1e-4


def test_a_distance_is_a_share_of_the_variance_and_posteriors_weigh_labels_more():
    torch.manual_seed(0)
    wanted = torch.randn(2, 50, 8) * 3 + 1
    assert distance(wanted, wanted).item() == 0
    assert distance(wanted.mean(dim=(0, 1)).expand_as(wanted), wanted).item() == pytest.approx(1, abs=0.02)

    logits = torch.randn(1, 4, 5)
    blank, label = torch.full((1, 4, 5), -9.0), torch.full((1, 4, 5), -9.0)
    blank[..., -1], label[..., 0] = 9.0, 9.0
    mixed = torch.cat([blank[:, :2], label[:, 2:]], dim=1).log_softmax(-1)
    even, labels = (posterior_loss(logits, mixed, emphasis).item() for emphasis in (0.0, 1e6))
    only = posterior_loss(logits[:, 2:], mixed[:, 2:], 0.0).item()
    assert labels == pytest.approx(only, rel=1e-3)
    assert even != pytest.approx(only, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "student",
    [{}, {"layers": 1}, {"layers": 3}, {"width": 32, "layers": 1}, {"width": 96, "layers": 3}],
    ids=["the same", "shallower", "deeper", "narrower", "wider"],
)
def test_a_student_of_any_depth_and_width_learns_in_both_stages_and_is_exported_alone(tmp_path, student):
    teacher = TEACHER | {"apart": {"steps": 40, "peak": 0.006}}
    run = new_run(tmp_path, **distilled(steps=80, teacher=teacher, student=STUDENT | student, augmentation={}))

    losses = trained(run)
    run.export(tmp_path / "student.nemo")

    apart, chained = losses[:40], losses[40:]
    for stage in (apart, chained):
        assert sum(loss for _, loss, *_ in stage[-10:]) < sum(loss for _, loss, *_ in stage[:10])
    assert sum(states for *_, states, _ in apart[-10:]) < 0.6 * sum(states for *_, states, _ in apart[:10])
    assert (run.network.maps is None) == ("width" not in student)
    info = load_model(tmp_path / "student.nemo").info()
    assert info["parameters"] == run.parameters
    assert info["layers"] == (STUDENT | student)["layers"]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [4, 6, 9])
@pytest.mark.parametrize("changes", [{}, {"precision": "bfloat16", "student": STUDENT | {"width": 32}}])
def test_a_run_that_stops_in_either_stage_goes_on_as_if_it_had_not(tmp_path, changes, stop):
    changes = changes | {"optimizer": {"peak": 0.002, "warmup": 2, "matrices": "muon"}}
    whole = new_run(tmp_path, "whole", **distilled(**changes))
    losses = trained(whole)

    part = new_run(tmp_path, "part", **distilled(**changes))
    finish(part, stops=lambda: part.step >= stop)
    resumed = new_run(tmp_path, "part", **distilled(**changes))
    resumed.resume()
    assert resumed.step == stop

    assert trained(resumed) == losses
    assert all(torch.equal(resumed.average.state[name], value) for name, value in whole.average.state.items())


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_with_the_same_parts(tmp_path):
    changes = {"batches": {"seconds": 6, "parts": 2}, "batch_norm": "running", "steps": 8, "augmentation": {}}
    teacher = TEACHER | {"apart": {"steps": 4, "peak": 0.004, "noise": 0.0}, "swap": 0.0}
    losses = trained(new_run(tmp_path, "one", **distilled(teacher=teacher, **changes)))

    ran = together(tmp_path, "two", 2)

    assert ran.returncode == 0, ran.stderr
    assert [step["loss"] for step in steps(tmp_path / "two")] == pytest.approx([one[1] for one in losses], rel=1e-4)


def test_each_stage_has_its_own_rate(tmp_path):
    recipe = read_recipe(recipe_file(tmp_path, **distilled(steps=40, optimizer={"peak": 0.001, "warmup": 2})))

    rates = [rate_of_step(recipe, step) for step in range(40)]

    assert rates[2:6] == [0.004] * 4
    assert rates[6] < 0.001
    assert max(rates[6:]) == pytest.approx(0.001)
    assert rates[-1] == pytest.approx(0.00001)


def test_moments_of_the_first_stage_are_forgotten_in_the_second(tmp_path):
    run = new_run(tmp_path, **distilled())
    finish(run, stops=lambda: run.step >= 7)

    counted = {int(state["step"]) for part in run.optimizer._parts for state in part.state.values() if "step" in state}

    assert counted == {1}


def refused(folder, key, match, **changes):
    with pytest.raises(RecipeError, match=match) as refusal:
        new_run(folder, **distilled(**changes))
    assert refusal.value.key.startswith(key)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("quartznet-small", "without the layers of a Conformer"),
        ("fastconformer-tdt-bpe", "has no CTC head"),
        ("canary-small", "has no CTC head"),
    ],
)
def test_a_model_that_cannot_teach_is_refused(tmp_path, name, match):
    refused(tmp_path, "teacher.checkpoint", match, teacher=TEACHER | {"checkpoint": str(GOLDEN / name / "model.nemo")})


def test_a_student_with_other_frames_than_its_teacher_is_refused(tmp_path):
    refused(tmp_path, "student.subsampling_factor", "4 features, .* 8", student=STUDENT | {"subsampling_factor": 4})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"vocabulary": str(CHECKPOINT)}, "teacher and vocabulary exclude each other"),
        ({"student": STUDENT | {"transducer": {"predictor_width": 8, "joint_width": 8}}}, "a CTC head alone"),
        ({"steps": 5}, "teacher.apart.steps must be at most steps"),
    ],
)
def test_a_recipe_that_does_not_go_with_a_teacher_is_refused(tmp_path, changes, match):
    with pytest.raises(RecipeError, match=match):
        read_recipe(recipe_file(tmp_path, **distilled(**changes)))


def test_a_look_ahead_shows_what_would_be_trained_and_nothing_is_probed(tmp_path, capsys):
    manifest(tmp_path, dict.fromkeys(("awb-4s", "rms-6s")))  # without transcripts
    recipe = recipe_file(tmp_path, **distilled())

    assert cli.main(["train", "run", str(recipe), "--check", "--device", "cpu"]) == 0
    assert "2 clips" in capsys.readouterr().out
    assert cli.main(["train", "run", str(recipe), "--probe", "--device", "cpu"]) == 2
    assert "batches.seconds is all that there is" in capsys.readouterr().err


def test_clips_that_cannot_be_read_are_left_out_and_a_run_without_any_ends(tmp_path):
    path = manifest(tmp_path, dict.fromkeys(("awb-4s", "rms-6s")))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (tmp_path / "gone.wav").write_bytes(b"RIFF")
    path.write_text("".join(json.dumps(line | {"audio": "gone.wav"}) + "\n" for line in lines))
    run = new_run(tmp_path, **distilled())

    with pytest.raises(TrainingError, match="no clip of 10 batches can be used"):
        finish(run)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_student_of_random_weights_comes_to_its_teachers_tokens(tmp_path):
    manifest(tmp_path, {"awb-4s": None})
    # A teacher of random weights has other tokens for nearly the same sound, so the student hears just this one often.
    composition = {"lengths": [4], "speeds": [1, 1], "fragments": 0}
    teacher = TEACHER | {"apart": {"steps": 900, "peak": 0.004, "noise": 0.02}, "composition": composition}
    changes = {
        "steps": 3000,
        "batches": {"seconds": 8},
        "teacher": teacher,
        "student": STUDENT | {"subsampling_channels": 32},
        "augmentation": {},
        "optimizer": {"peak": 0.005, "warmup": 20, "matrices": "muon", "ema": 0.97, "max_norm": 5},
    }
    run = new_run(tmp_path, **distilled(**changes))
    finish(run)
    run.export(tmp_path / "student.nemo")

    samples, _ = soundfile.read(GOLDEN / "clips" / "awb-4s.wav", dtype="float32")
    wanted, found = (
        load_model(path).transcribe([samples[:64_000]])[0] for path in (CHECKPOINT, tmp_path / "student.nemo")
    )

    assert len(wanted.tokens) > 5
    assert found.tokens == wanted.tokens
