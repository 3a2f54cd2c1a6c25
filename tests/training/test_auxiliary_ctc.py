"""A CTC head beside an attention decoder teaches the encoder in training, and is not exported."""

import pytest
import torch

from models.checkpoint import read_checkpoint
from tests.training.small_run import CHECKPOINT, assert_resumes, first_batch, log
from tests.training.test_attention_objective import new_canary
from training.errors import RecipeError
from training.step import batch_losses, take_step

CPU = torch.device("cpu")
AUXILIARY = {"auxiliary_ctc": 0.3}


def test_its_loss_is_added_and_teaches_the_encoder(tmp_path):
    run = new_canary(tmp_path, objective=AUXILIARY)
    batch = first_batch(run)
    run.network.attention_decoder.requires_grad_(requires_grad=False)

    losses = batch_losses(run, batch)
    attention, ctc = (losses.parts[name] for name in ("attention", "ctc"))
    ctc.backward()

    assert losses.total.item() == pytest.approx(attention.item() + 0.3 * ctc.item())
    assert all(weight.grad.abs().sum() > 0 for weight in run.network.encoder.layers[0].attention.query.parameters())


def test_the_other_weights_begin_as_without_it(tmp_path):
    without = new_canary(tmp_path).network.state_dict()

    found = new_canary(tmp_path, objective=AUXILIARY).network.state_dict()

    assert {name.split(".")[0] for name in set(found) - set(without)} == {"auxiliary_ctc"}
    assert all(torch.equal(found[name], value) for name, value in without.items())


def test_the_exported_model_is_a_canary_without_it(tmp_path):
    for name, objective in (("without", {}), ("with", AUXILIARY)):
        run = new_canary(tmp_path, objective=objective)
        take_step(run, first_batch(run))
        run.export(tmp_path / f"{name}.nemo")

    without, found = (read_checkpoint(tmp_path / f"{name}.nemo") for name in ("without", "with"))

    assert found.config == without.config
    assert found.state.keys() == without.state.keys()


def test_a_run_with_it_resumes_as_if_it_had_not_stopped(tmp_path):
    options = {"objective": AUXILIARY, "dropout": 0.1, "save_every": 2}

    assert_resumes(lambda: new_canary(tmp_path, steps=6, **options))

    assert all(line["ctc"] > 0 for line in log(tmp_path / "out"))


def test_the_encoder_may_come_from_a_model_with_ctc_of_the_same_shape(tmp_path):
    student = {"layers": 1, "width": 16, "heads": 2, "subsampling_channels": 8}
    new_canary(tmp_path, student=student, languages=None, vocabulary="en.model").export(tmp_path / "ctc.nemo")

    run = new_canary(tmp_path, initial="ctc.nemo", objective=AUXILIARY)

    assert "weights of ctc.nemo kept: encoder; new: attention_decoder" in run.survey
    ctc = read_checkpoint(tmp_path / "ctc.nemo").state
    own = run.network.state_dict()
    assert all(torch.equal(own[name], ctc[name].to(own[name].dtype)) for name in ctc if name.startswith("encoder."))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"languages": None, "vocabulary": str(CHECKPOINT), "student": {"layers": 1, "width": 16, "heads": 2}},
            "is for a model with an attention decoder",
        ),
        ({"initial": "canary.nemo", "freeze": ["encoder"]}, "objective.auxiliary_ctc and freeze exclude each other"),
    ],
)
def test_where_it_would_teach_nothing_it_is_refused(tmp_path, changes, message):
    new_canary(tmp_path).export(tmp_path / "canary.nemo")

    with pytest.raises(RecipeError, match=message) as raised:
        new_canary(tmp_path, objective=AUXILIARY, **changes)

    assert raised.value.key == "objective.auxiliary_ctc"
