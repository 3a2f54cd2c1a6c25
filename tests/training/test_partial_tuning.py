"""Frozen weights stay to the last bit, adapters are merged at export, and rates go by patterns."""

import pytest
import torch

from models.checkpoint import read_checkpoint
from tests.conftest import GOLDEN
from tests.training.small_run import assert_resumes, first_batch, new_run
from tests.training.test_tuning import run_from
from training.adapters import is_adapter
from training.errors import RecipeError
from training.step import take_step
from training.student import StudentNetwork

CTC, CANARY = "fastconformer-ctc-bpe", "canary-small"
ADAPTERS = {"rank": 2, "alpha": 8.0}


def weights(run):
    return {name: value.clone() for name, value in run.network.state_dict().items()}


def steps(run, count=2):
    batches = run.batches()
    for _ in range(count):
        take_step(run, next(batches))
    batches.close()


def changed(run, before):
    return {name for name, value in run.network.state_dict().items() if not torch.equal(value, before[name])}


def test_weights_that_match_a_pattern_stay_to_the_last_bit(tmp_path):
    frozen = ["encoder.subsampling", "encoder.layers.0", "*.norm.*"]
    run = run_from(tmp_path, CTC, freeze=frozen, batch_norm="batch")
    before = weights(run)

    steps(run)
    run.export(tmp_path / "tuned.nemo")

    moved = changed(run, before)
    assert not [
        name for name in moved if name.startswith(("encoder.subsampling.", "encoder.layers.0.")) or ".norm." in name
    ]
    assert "encoder.layers.1.attention.query.weight" in moved
    assert "encoder.layers.1.convolution.batch_norm.running_mean" in moved
    assert "ctc.projection.weight" in moved
    first, tuned = read_checkpoint(GOLDEN / CTC / "model.nemo").state, read_checkpoint(tmp_path / "tuned.nemo").state
    for name in first.keys() - moved:
        torch.testing.assert_close(tuned[name], first[name].to(tuned[name].dtype), rtol=0, atol=0)


def test_dropout_of_a_frozen_module_drops_nothing(tmp_path):
    run = run_from(tmp_path, CTC, freeze=["encoder.layers.0"], dropout=0.5)

    run.mode.apply(run.network, is_silence=False)

    assert [layer.dropout.training for layer in run.network.encoder.layers][:2] == [False, True]


@pytest.mark.parametrize("name", [CTC, CANARY])
def test_adapters_alone_are_trained_and_merged_at_export(tmp_path, name):
    run = run_from(tmp_path, name, freeze=["*"], adapters=ADAPTERS, optimizer={"peak": 0.03, "warmup": 0, "ema": 0.0})
    before = weights(run)

    steps(run)
    run.export(tmp_path / "tuned.nemo")

    moved = changed(run, before)
    assert moved
    assert all(is_adapter(one) for one in moved)
    assert {one.split(".")[0] for one in moved} == ({"encoder", "attention_decoder"} if name == CANARY else {"encoder"})
    first, tuned = read_checkpoint(GOLDEN / name / "model.nemo"), read_checkpoint(tmp_path / "tuned.nemo")
    assert tuned.state.keys() == first.state.keys()
    stems = {one.rsplit(".", 1)[0] + ".weight" for one in moved}
    for one, value in first.state.items():
        is_as_it_was = torch.equal(
            tuned.state[one].float(), value.half().float() if value.is_floating_point() else value
        )
        assert is_as_it_was == (one not in stems) or one.endswith(("positions", "running_mean", "running_var")), one


def test_the_exported_model_computes_what_the_adapted_one_does(tmp_path):
    run = run_from(tmp_path, CTC, freeze=["*"], adapters=ADAPTERS, optimizer={"peak": 0.03, "warmup": 0, "ema": 0.0})
    features = torch.randn(1, run.config.features.mels, 64)

    def computed(network):
        with torch.no_grad():
            return network.ctc(network.eval().encoder(features, torch.tensor([64]))[0])

    before = computed(run.network)
    steps(run)
    run.export(tmp_path / "tuned.nemo")
    network = StudentNetwork(run.config, dropout=0.0, seed=0)
    network.load_state_dict(run.averaged)

    torch.testing.assert_close(computed(network), computed(run.network), rtol=1e-4, atol=1e-4)
    assert (computed(run.network) - before).abs().max() > 0.05
    exported = read_checkpoint(tmp_path / "tuned.nemo").state
    assert all(torch.equal(exported[name].half(), value.half()) for name, value in run.averaged.items())


def test_an_adapted_run_begins_as_the_model_was(tmp_path):
    options = {"augmentation": {}, "dropout": 0.0}
    losses = []
    for changes in ({}, {"adapters": ADAPTERS}):
        run = run_from(tmp_path, CTC, **options, **changes)
        losses.append(take_step(run, first_batch(run)).loss)

    assert losses[0] == losses[1]


@pytest.mark.parametrize("matrices", [None, "muon"])
def test_a_run_with_all_of_it_resumes_as_if_it_had_not_stopped(tmp_path, matrices):
    rates = [{"weights": ["ctc"], "factor": 0.5}, {"weights": ["*adapter_up"], "factor": 4}]
    optimizer = {"peak": 0.01, "warmup": 1, "rates": rates, "matrices": matrices}
    options = {
        "freeze": ["encoder.layers.0"],
        "adapters": ADAPTERS | {"layers": ["encoder.layers.1.*feed_forward.*"]},
        "optimizer": optimizer,
        "dropout": 0.1,
    }

    assert_resumes(lambda: run_from(tmp_path, CTC, steps=6, **options))


def test_rates_are_factors_of_the_scheduled_one(tmp_path):
    rates = [{"weights": ["encoder.subsampling"], "factor": 0.1}, {"weights": ["ctc"], "factor": 3}]
    optimizer = {"peak": 0.01, "warmup": 0, "weight_decay": 0.0, "max_norm": 1e6}
    moves = {}
    for changes in ({}, {"rates": rates}):
        run = run_from(tmp_path, CTC, optimizer=optimizer | changes, augmentation={}, dropout=0.0)
        before = weights(run)
        steps(run, 1)
        for name, value in dict(run.network.named_parameters()).items():
            moves.setdefault(name, []).append((value - before[name]).abs().max().item())

    for name, (plain, rated) in moves.items():
        factor = 0.1 if name.startswith("encoder.subsampling") else 3 if name.startswith("ctc") else 1
        assert rated == pytest.approx(factor * plain, rel=0.02, abs=1e-6), name


def rates(*patterns):
    of_patterns = [{"weights": [pattern], "factor": 2} for pattern in patterns]
    return {"optimizer": {"peak": 1e-3, "warmup": 0, "rates": of_patterns}}


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"freeze": ["encoder.nothing"]}, "freeze", "nothing is called 'encoder.nothing' in encoder.subsampling, "),
        ({"freeze": ["*"]}, "freeze", "freeze leaves nothing to train"),
        ({"adapters": {"rank": 2, "layers": ["ctc"]}}, "adapters.layers", "nothing is called 'ctc' in "),
        (
            {"adapters": {"rank": 4000}},
            "adapters.rank",
            "4000 must be below the width of encoder.layers.0",
        ),
        ({"freeze": ["ctc"]} | rates("ctc"), "optimizer.rates[0].weights", "nothing is called 'ctc'"),
        (rates("ctc", "*.bias"), "optimizer.rates[1].weights", "ctc.projection.bias has another rate already"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(tmp_path, changes, key, message):
    with pytest.raises(RecipeError, match=message.replace("[", r"\[").replace("*", r"\*")) as raised:
        run_from(tmp_path, CTC, **changes)

    assert raised.value.key == key


@pytest.mark.parametrize("changes", [{"freeze": ["ctc"]}, {"adapters": {"rank": 2}}])
def test_a_model_from_nothing_has_nothing_to_keep(tmp_path, changes):
    with pytest.raises(RecipeError, match=f"{next(iter(changes))} is for the weights of initial"):
        new_run(tmp_path, **changes)


def test_a_convolutional_model_has_no_layers_for_adapters(tmp_path):
    with pytest.raises(RecipeError, match="adapters are for the layers of a Conformer or an attention decoder"):
        run_from(tmp_path, "quartznet-small", adapters={"rank": 2})
