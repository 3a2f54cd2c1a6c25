"""The log of a run is shown by the programs that a recipe names, which are imported only then."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.training.small_run import finish, log, new_run
from training.errors import TrainingError
from training.loggers import check_loggers, open_loggers
from training.recipe import Loggers, Mlflow, Wandb

BOTH = Loggers(wandb=Wandb(project="speech"), mlflow=Mlflow(experiment="speech"))


class BrokenError(Exception):
    """What either program raises."""


class Elsewhere:
    """In place of the programs: keeps what it is sent, by run; it raises where it is told to be broken."""

    def __init__(self):
        self.sent = {}
        self.is_broken = False

    # Weights & Biases.
    errors = SimpleNamespace(Error=BrokenError)

    def init(self, **options):
        self._fail()
        assert (options["project"], options["name"], options["resume"]) == ("speech", "out", "allow")
        lines = self.sent.setdefault(f"wandb {options['id']}", [])
        return SimpleNamespace(log=lambda numbers, step: lines.append((step, numbers)), finish=lambda: None)

    # MLflow.
    exceptions = SimpleNamespace(MlflowException=BrokenError)
    entities = SimpleNamespace(Metric=lambda key, value, now, step: (step, key, value))

    def MlflowClient(self):  # noqa: N802  # its name there
        return self

    def get_experiment_by_name(self, name):
        self._fail()

    def create_experiment(self, name):
        return f"of {name}"

    def create_run(self, experiment, run_name):
        assert (experiment, run_name) == ("of speech", "out")
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run {len(self.sent)}"))

    def log_batch(self, run, metrics):
        self._fail()
        self.sent.setdefault(f"mlflow {run}", []).append((metrics[0][0], {key: value for _, key, value in metrics}))

    def set_terminated(self, run):
        self._fail()

    def _fail(self):
        if self.is_broken:
            raise BrokenError("no answer")


@pytest.fixture
def elsewhere(monkeypatch):
    found = Elsewhere()
    monkeypatch.setitem(sys.modules, "wandb", found)
    monkeypatch.setitem(sys.modules, "mlflow", found)
    return found


def train_to(folder, last):
    run = new_run(
        folder, steps=4, save_every=1, loggers={"wandb": {"project": "speech"}, "mlflow": {"experiment": "speech"}}
    )
    if last > 2:
        run.resume()
    loggers = open_loggers(run.recipe.loggers, run.folder, run.step, tensorboard=False)
    finish(run, stops=lambda: run.step >= last, loggers=loggers)


def test_all_numbers_arrive_with_their_steps_and_a_resumed_run_goes_on_there(tmp_path, elsewhere):
    train_to(tmp_path, 2)
    train_to(tmp_path, 4)

    assert len(elsewhere.sent) == 2
    for lines in elsewhere.sent.values():
        assert [step for step, _ in lines] == [1, 2, 3, 4]
        assert [numbers["loss"] for _, numbers in lines] == [line["loss"] for line in log(tmp_path / "out")]
        assert all("step" not in numbers and None not in numbers.values() for _, numbers in lines)


def test_a_run_that_begins_anew_is_another_one_there(tmp_path, elsewhere):
    train_to(tmp_path, 2)
    train_to(tmp_path, 2)

    assert len(elsewhere.sent) == 4


def test_a_server_that_is_gone_ends_no_run(tmp_path, elsewhere):
    (logger,) = open_loggers(Loggers(mlflow=BOTH.mlflow), _out(tmp_path), 0, tensorboard=False)
    elsewhere.is_broken = True

    logger.add({"step": 1, "loss": 2.0})
    logger.close()


@pytest.mark.parametrize("config", [Loggers(wandb=BOTH.wandb), Loggers(mlflow=BOTH.mlflow)])
def test_a_program_that_cannot_begin_is_one_line(tmp_path, elsewhere, config):
    elsewhere.is_broken = True

    with pytest.raises(TrainingError, match="cannot begin: no answer"):
        open_loggers(config, _out(tmp_path), 0, tensorboard=False)


def _out(folder):
    (folder / "out").mkdir()
    return folder / "out"


@pytest.mark.parametrize(
    ("module", "config", "message"),
    [
        ("wandb", Loggers(wandb=BOTH.wandb), r"Weights & Biases is not installed; .* pip install 'steno\[wandb\]'"),
        ("mlflow", Loggers(mlflow=BOTH.mlflow), r"MLflow is not installed; .* pip install 'steno\[mlflow\]'"),
        ("torch.utils.tensorboard", Loggers(), r"TensorBoard is not installed; .* pip install 'steno\[tensorboard\]'"),
    ],
)
def test_a_program_that_is_not_installed_is_named_with_its_extra(monkeypatch, module, config, message):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(TrainingError, match=message):
        check_loggers(config, tensorboard=module.startswith("torch"))


def test_training_imports_none_of_them():
    code = "import sys, training.loop; print({'wandb', 'mlflow', 'tensorboard'} & set(sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
