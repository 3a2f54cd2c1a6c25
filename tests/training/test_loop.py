"""A run learns, reports its losses, and resumes with exactly the same losses, even after kill -9."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import pad

from models import load_model
from tests.conftest import ROOT
from tests.training.small_run import (
    CPU,
    RNNT,
    TDT,
    TEXTS,
    assert_padding_is_free,
    finish,
    first_batch,
    log,
    manifest,
    new_run,
    recipe_file,
)
from training.errors import ManifestError, RecipeError, ResumeError, TrainingError
from training.recipe_file import read_recipe
from training.run import Run
from training.sampler import Position
from training.step import batch_losses, take_step
from training.vocabulary import new_vocabulary

EIGHT_PARTS = {"seconds": 8, "buckets": 2, "parts": 8}  # more than there are clips


def with_transducer(transducer, **changes):
    return {"layers": 2, "width": 16, "heads": 2, "subsampling_channels": 8, "transducer": transducer} | changes


def steps(folder):
    return [(line["step"], line["loss"], line["gradient_norm"]) for line in log(folder) if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bfloat16"},
        {"student": with_transducer(TDT)},
        {"student": with_transducer(RNNT), "precision": "bfloat16"},
    ],
)
def test_the_loss_falls(tmp_path, changes):
    run = new_run(tmp_path, steps=40, augmentation={}, **changes)

    lines = finish(run)

    losses = [loss for _, loss, _ in steps(tmp_path / "out")]
    assert len(losses) == 40
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])
    assert len(lines) == 12
    assert lines[0].startswith("step 1 begins")
    assert lines[1].startswith("step 1: loss ")
    assert lines[2].startswith("step 4/40: loss ")
    assert all(("transducer" in line) == ("student" in changes) for line in log(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "matrices", "transducer"),
    [("float32", None, None), ("bfloat16", None, TDT), ("float32", "muon", None)],
)
@pytest.mark.parametrize("stop", [5, 7])
def test_a_run_that_stops_goes_on_as_if_it_had_not(tmp_path, precision, matrices, transducer, stop):
    student = with_transducer(transducer, layers=1, subsampling_channels=4)
    changes = {"precision": precision, "student": student, "dropout": 0.2}
    changes["optimizer"] = {"matrices": matrices, "peak": 0.003, "warmup": 2}
    whole = new_run(tmp_path, "whole", **changes)
    finish(whole)

    ticks = iter(range(1000))
    finish(new_run(tmp_path, "parts", **changes), minutes=(stop * 1.5) / 60, clock=lambda: next(ticks))
    done = steps(tmp_path / "parts")[-1][0]
    assert 0 < done < 12
    run = new_run(tmp_path, "parts", **changes)
    run.resume()
    assert run.step == done
    finish(run)

    assert steps(tmp_path / "parts") == steps(tmp_path / "whole")
    assert all(torch.equal(run.average.state[name], value) for name, value in whole.average.state.items())


AFTER_A_STEP = """
import cli.training.run
said = cli.training.run._report
cli.training.run._report = lambda line: (said(line), die(signal.SIGKILL) if line.startswith("step 21/") else None)
"""
WHILE_WRITING_THE_STATE = """
import torch
written = torch.save
def half(content, file):
    if content["step"] == 24:
        file.write(b"PK")
        file.flush()
        die()
    written(content, file)
torch.save = half
"""
DIES = """
import os, signal, sys, cli
def die(number=signal.SIGKILL): os.kill(os.getpid(), number)
{}
sys.exit(cli.main(sys.argv[1:]))
"""


def in_a_process(folder, *more, script):
    """Go on with a run by the command, after a script that may end it; the recipe is in the folder."""
    arguments = ["train", "run", "recipe.yaml", "--out", "killed", "--device", "cpu", "--resume", *more]
    # As many threads as the whole run has in this process.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", DIES.replace("{}", script), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [AFTER_A_STEP, WHILE_WRITING_THE_STATE], ids=["after a step", "writing the state"])
def test_a_run_killed_by_kill_9_resumes_with_the_same_losses(tmp_path, moment):
    finish(new_run(tmp_path, "whole", steps=30, save_every=8, report_every=1))

    killed = in_a_process(tmp_path, script=moment)
    done_before = steps(tmp_path / "killed")[-1][0]
    assert in_a_process(tmp_path, script="").returncode == 0

    assert killed.returncode == -signal.SIGKILL
    assert done_before == (21 if moment is AFTER_A_STEP else 24)
    assert steps(tmp_path / "killed") == steps(tmp_path / "whole")


AT_A_SYSTEM_CALL = """
import random
left = random.Random({seed}).randrange(80)
def count(event, _):
    global left
    if running and event in ("open", "os.rename", "os.remove", "os.truncate"):
        left -= 1
        if left < 0: die()
running = False
sys.addaudithook(count)
import training.loop, training.run
train, index = training.loop.train, training.run.take_index
def counted_train(*arguments, **options):
    global running
    running = True
    train(*arguments, **options)
def counted_index(*arguments):
    global running
    running = True
    found = index(*arguments)
    running = False
    return found
training.loop.train, training.run.take_index = counted_train, counted_index
"""


def test_a_run_that_is_killed_before_its_first_step_measures_again(tmp_path):
    options = {"steps": 2, "dev": {"manifest": "manifest.jsonl", "every": 2}}
    run = new_run(tmp_path, **options)
    (tmp_path / "out" / "log.jsonl").write_text('{"step": 0, "wer": {"all": 0.0}}\n')

    finish(run, word_errors=lambda *_: (1, 2))

    assert [line["wer"]["all"] for line in log(tmp_path / "out") if "wer" in line] == [0.5, 0.5]
    assert (tmp_path / "out" / "best.nemo").exists()


@pytest.mark.long
@pytest.mark.timeout(1200)  # it starts up to 41 processes
def test_a_run_killed_over_and_over_at_any_file_that_it_opens_or_replaces_loses_nothing(tmp_path):
    options = {"steps": 16, "save_every": 1, "report_every": 4, "dev": {"manifest": "manifest.jsonl", "every": 2}}
    finish(new_run(tmp_path, "whole", **options))
    killed = 0
    for seed in range(40):
        ended = in_a_process(tmp_path, "--export", "model.nemo", script=AT_A_SYSTEM_CALL.replace("{seed}", str(seed)))
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        killed += 1

    assert ended.returncode == 0
    assert killed >= 3
    assert steps(tmp_path / "killed") == steps(tmp_path / "whole")
    assert load_model(tmp_path / "model.nemo").info()["layers"] == 2
    assert load_model(tmp_path / "killed" / "best.nemo").info()["layers"] == 2
    left = {str(path.relative_to(tmp_path / "killed")) for path in (tmp_path / "killed").rglob("*") if path.is_file()}
    index = {"takes/clips.jsonl", "takes/takes.bin", "takes/index.json"}
    assert left == {"lock", "state.pt", "log.jsonl", "best.nemo"} | index


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_gets_sigterm_saves_its_last_step(tmp_path, asked):
    manifest(tmp_path)
    recipe_file(tmp_path, steps=30, save_every=8, report_every=1)

    told = in_a_process(tmp_path, "--export", "told.nemo", script=AFTER_A_STEP.replace("SIGKILL", asked.name))

    assert told.returncode == 128 + asked
    assert "stopped at step 21; its state is saved, --resume continues" in told.stdout
    assert not (tmp_path / "told.nemo").exists()
    run = Run(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "killed", CPU)
    run.resume()
    assert run.step == 21


@pytest.mark.parametrize("missing", ["identity", "epoch", "network"])
def test_a_state_without_a_part_is_refused(tmp_path, missing):
    finish(new_run(tmp_path, steps=2))
    path = tmp_path / "out" / "state.pt"
    state = torch.load(path)
    del state[missing]
    torch.save(state, path)

    with pytest.raises(ResumeError, match="damaged"):
        new_run(tmp_path, steps=2).resume()


def test_a_run_goes_on_watched_in_another_way_but_not_with_another_recipe_or_other_clips(tmp_path):
    finish(new_run(tmp_path, steps=2))

    with pytest.raises(ResumeError, match="other values of seed"):
        new_run(tmp_path, seed=9, steps=2).resume()
    run = new_run(tmp_path, steps=2, report_every=1, save_every=1)
    run.resume()
    assert run.finished
    manifest(tmp_path, dict(list(TEXTS.items())[:3]))
    with pytest.raises(ResumeError, match="other values of clips"):
        new_run(tmp_path, steps=2).resume()


def test_a_loss_that_is_no_number_stops_the_run_and_leaves_the_weights(tmp_path):
    run = new_run(tmp_path)
    with torch.no_grad():
        run.network.ctc.projection.bias[3] = float("nan")
    before = run.network.ctc.projection.weight.clone()

    with pytest.raises(TrainingError, match="the loss of step 1 is nan"):
        finish(run)

    assert torch.equal(run.network.ctc.projection.weight, before)
    assert not (tmp_path / "out" / "state.pt").exists()


def test_hidden_features_do_not_reach_the_student(tmp_path):
    run = new_run(tmp_path, augmentation={})
    run.network.eval()
    batch = first_batch(run)
    seen = []
    run.network.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))

    batch.masked_frames[0, 3:9] = True
    batch.masked_mels[0, 70:] = True
    batch_losses(run, batch)

    assert not seen[0][0, :, 3:9].any()
    assert not seen[0][0, 70:].any()
    assert seen[0][0, :70, 10:20].all()


def test_autocast_is_for_the_layers_and_not_for_the_subsampling(tmp_path):
    run = new_run(tmp_path, precision="bfloat16")
    seen = {}
    for name in ("subsampling.projection", "layers.0.attention.query"):
        module = run.network.encoder.get_submodule(name)
        module.register_forward_hook(lambda module, inputs, output, name=name: seen.update({name: output.dtype}))

    take_step(run, first_batch(run))

    assert seen == {"subsampling.projection": torch.float32, "layers.0.attention.query": torch.bfloat16}


@pytest.mark.parametrize("transducer", [None, TDT])
def test_padding_changes_neither_loss_nor_gradient(tmp_path, transducer):
    student = with_transducer(transducer, layers=1)
    run = new_run(tmp_path, augmentation={}, student=student, dropout=0.0, objective={"omega": 0})
    batch = first_batch(run)

    assert_padding_is_free(
        run,
        batch,
        waveforms=pad(batch.waveforms, (0, 8000), value=0.3),
        masked_frames=pad(batch.masked_frames, (0, 50)),
        tokens=pad(batch.tokens, (0, 3), value=1),
    )


def test_a_step_cuts_the_gradient_and_moves_the_run_on(tmp_path):
    run = new_run(tmp_path)
    batch = first_batch(run)

    result = take_step(run, batch)

    assert (run.step, run.position) == (1, Position(0, 1))
    assert run.network.encoder.layers[0].convolution.batch_norm.num_batches_tracked == 1
    assert run.audio_seconds == batch.audio_seconds
    assert result.learning_rate == pytest.approx(0.001)
    assert run.optimizer.param_groups[0]["lr"] == result.learning_rate
    total = torch.stack([parameter.grad.norm() for parameter in run.network.parameters()]).norm()
    assert total.item() <= run.recipe.optimizer.max_norm * 1.01


def test_silence_in_place_of_clips_changes_no_statistics_of_batch_norm(tmp_path):
    run = new_run(tmp_path, batches=EIGHT_PARTS)
    batches = run.batches()
    parts = [next(batches) for _ in range(8)]
    spoken = [part for part in parts if not part.is_silence]

    take_step(run, *parts)

    assert 0 < len(spoken) < len(parts)
    assert run.network.encoder.layers[0].convolution.batch_norm.num_batches_tracked == len(spoken)


def test_a_student_with_a_transducer_learns_from_all_at_once(tmp_path):
    objective = {"ctc": 0.3, "transducer": 0.7, "omega": 0}
    run = new_run(tmp_path, student=with_transducer(TDT), objective=objective)

    result = take_step(run, first_batch(run))

    assert result.loss == pytest.approx(0.3 * result.losses["ctc"] + 0.7 * result.losses["transducer"], rel=1e-4)
    assert all(parameter.grad.any() for parameter in run.network.joint.parameters())
    assert all(parameter.grad.any() for parameter in run.network.predictor.parameters())


def test_now_and_then_a_tdt_learns_without_its_durations_by_the_step(tmp_path):
    def durations_learn(run):
        take_step(run, first_batch(run))
        return run.network.joint.output.weight.grad[128 + 1 :].any().item()

    changes = {"student": with_transducer(TDT), "objective": {"omega": 0.5}}
    learned = [durations_learn(run) for run in [new_run(tmp_path, **changes)] for _ in range(8)]
    again = [durations_learn(run) for run in [new_run(tmp_path, **changes)] for _ in range(8)]

    assert learned == again
    assert set(learned) == {True, False}


@pytest.mark.parametrize("transducer", [None, TDT])
def test_a_student_starts_from_the_weights_of_another(tmp_path, transducer):
    student = with_transducer(transducer)
    first = new_run(tmp_path, steps=2, student=student)
    finish(first)
    first.export(tmp_path / "first.nemo")

    same = new_run(tmp_path, out="same", initial="first.nemo", student=student)
    model = tmp_path / "own.model"
    model.write_bytes(new_vocabulary(list(TEXTS.values()), 24))
    other = new_run(tmp_path, out="other", initial="first.nemo", vocabulary=str(model), seed=4, student=student)

    trained = {name: value.half().float() for name, value in first.average.state.items() if "running" not in name}
    for name, value in same.network.state_dict().items():
        if name in trained and value.is_floating_point():
            torch.testing.assert_close(value, trained[name])
    encoder = "encoder.layers.0.attention.query.weight"
    torch.testing.assert_close(other.network.state_dict()[encoder], trained[encoder])
    assert len(other.network.ctc.projection.weight) == 24 + 1


@pytest.mark.parametrize(
    ("student", "message"),
    [({"layers": 1, "width": 16, "heads": 2, "subsampling_channels": 8}, "another shape"), (None, "no checkpoint")],
)
def test_weights_of_another_shape_or_none_are_no_start(tmp_path, student, message):
    if student:
        new_run(tmp_path).export(tmp_path / "first.nemo")

    with pytest.raises(RecipeError, match=message):
        new_run(tmp_path, out="next", initial="first.nemo", **({"student": student} if student else {}))


def test_progress_is_not_measured_on_clips_without_transcripts(tmp_path):
    (tmp_path / "dev.jsonl").write_text('{"audio": "mute.wav", "duration": 1}')

    with pytest.raises(ManifestError, match=r"mute\.wav \(.*, line 1\) has no transcript"):
        new_run(tmp_path, dev={"manifest": "dev.jsonl", "every": 2})


def test_word_errors_are_measured_logged_and_reported(tmp_path):
    run = new_run(tmp_path, steps=4, dev={"manifest": "manifest.jsonl", "every": 2})
    heard = []

    lines = finish(run, word_errors=lambda text, transcript: (heard.append((text, transcript)) or 1, len(text.split())))

    words = sum(len(text.split()) for text in TEXTS.values())
    measured = [line for line in log(tmp_path / "out") if "wer" in line]
    assert [line["step"] for line in measured] == [0, 2, 4]
    assert measured[0]["wer"] == {"manifest": round(4 / words, 5), "all": round(4 / words, 5)}
    assert sorted(text for text, _ in heard[:4]) == sorted(TEXTS.values())
    assert lines[0] == f"step 0: dev WER {400 / words:.1f} %"


def with_a_dev_set(folder, *names):
    """A run with some golden clips, and files that are no recordings, as its dev set."""
    manifest(folder)
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["audio"].endswith("slt-1s.wav")]
    rows += [{"audio": name, "duration": 1.0, "text": "nothing"} for name in names]
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "garbage.wav").write_bytes(b"nothing that anyone could hear")
    return new_run(folder, steps=2, dev={"manifest": "dev.jsonl", "every": 1})


def test_a_clip_of_the_dev_set_that_cannot_be_read_is_named_once_counted_and_ends_no_run(tmp_path):
    run = with_a_dev_set(tmp_path, "garbage.wav", "gone.wav")

    lines = finish(run, word_errors=lambda text, _: (1, len(text.split())))

    named = [line for line in lines if line.startswith("skipped: ")]
    assert [re.sub(r".*/", "", line.split(" (")[0]) for line in named] == ["garbage.wav", "gone.wav"]
    assert all(f"({tmp_path / 'dev.jsonl'}, line " in line for line in named)
    measured = [line for line in log(tmp_path / "out") if "wer" in line]
    assert [line["dev_skipped"] for line in measured] == [2, 2, 2]
    assert [line["wer"]["all"] for line in measured] == [0.5] * 3  # of "and then"


def test_a_dev_set_of_which_no_clip_can_be_read_ends_a_run(tmp_path):
    run = with_a_dev_set(tmp_path, "garbage.wav")
    run.dev = run.dev[1:]

    with pytest.raises(TrainingError, match=r"no clip of dev can be read; the last: .*garbage\.wav"):
        finish(run, word_errors=lambda text, _: (1, len(text.split())))


def test_the_time_of_measurements_is_not_in_the_speed_of_the_next_line(tmp_path):
    run = new_run(tmp_path, steps=6, report_every=1, dev={"manifest": "manifest.jsonl", "every": 2})
    seconds = 0.0

    def clock():
        nonlocal seconds
        seconds += 0.1
        return seconds

    def in_an_hour(text, transcript):
        nonlocal seconds
        seconds += 3600
        return 1, len(text.split())

    lines = finish(run, word_errors=in_an_hour, clock=clock)

    of_progress = [line for line in lines if "h of audio" in line]
    assert len(of_progress) == 6
    assert all(line.endswith(" 0 min left") for line in of_progress)


def test_a_run_ends_without_a_readable_clip_though_some_of_its_batches_have_none(tmp_path):
    manifest(tmp_path, texts={"slt-1s": "and then"})
    row = json.loads((tmp_path / "manifest.jsonl").read_text())
    (tmp_path / "garbage.wav").write_bytes(b"nothing that anyone could hear")
    (tmp_path / "manifest.jsonl").write_text(json.dumps(row | {"audio": "garbage.wav"}))
    run = new_run(tmp_path, steps=20, batches={"seconds": 8, "buckets": 1, "parts": 2})

    with pytest.raises(TrainingError, match="no clip of 10 batches can be used"):
        finish(run)


@pytest.mark.parametrize(("steps", "saved"), [(4, [2, 4]), (5, [2, 4, 5])])
def test_each_state_is_written_once(tmp_path, steps, saved):
    run = new_run(tmp_path, steps=steps, save_every=2)
    written, save = [], run.save
    run.save = lambda: (written.append(run.step), save())

    finish(run)

    assert written == saved
