"""The batches of each bucket are as large as fits, or as long as that makes them faster."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cli
from tests.training.small_run import manifest, new_run, recipe_file
from training.buckets import Bucket
from training.errors import RecipeError
from training.probe import Found, Measured, fastest, largest_that_fits, probe, table
from training.recipe import Optimizer

BUCKETS = [(Bucket(5.0, 20), 400, 16), (Bucket(10.0, 40), 100, 8), (Bucket(20.0, 80), 30, 4)]
STUDENT = {"layers": 1, "width": 16, "heads": 2, "subsampling_channels": 4}
OPTIMIZER = Optimizer(peak=0.001, warmup=0, ema=0.999)


@given(st.integers(0, 3000), st.integers(1, 2000))
@settings(deadline=None)
def test_what_fits_is_found_within_a_twentieth_and_never_more(room, most):
    tried = []

    found = largest_that_fits(lambda rows: tried.append(rows) or rows <= room, most)

    right = min(room, most)
    assert found <= right
    assert right - found <= max(1, 0.05 * (right + 1))
    assert all(1 <= rows <= most for rows in tried)
    assert len(tried) < 40


@given(st.integers(0, 8), st.integers(1, 600))
@settings(deadline=None)
def test_a_batch_grows_as_long_as_that_is_worth_it(saturation, most):
    # A batch of up to 2 ** saturation clips takes no longer than one clip.
    found = fastest(lambda rows: min(rows, 2**saturation), most)

    assert found <= most
    assert found == min(2**saturation, 2 ** (most.bit_length() - 1))


def test_every_bucket_has_what_fits_and_the_table_says_what_it_is_worth():
    def measure(bucket, rows):
        # 1,000 seconds fit, and a step takes a second and a hundredth of one for each second of audio.
        return Measured(1 + rows * bucket.seconds / 100 if rows * bucket.seconds <= 1000 else math.inf)

    found = probe(BUCKETS, measure, by_memory=True)

    assert [one.rows for one in found] == pytest.approx([200, 100, 30], rel=0.06)
    assert all(one.rows * one.bucket.seconds <= 1000 for one in found)
    lines = table(found, OPTIMIZER)
    assert lines[-1] == f"for the recipe: batches: {{rows: [{', '.join(str(one.rows) for one in found)}], ...}}"
    own = sum(one.clips / one.rows * one.step.seconds for one in found)
    given = sum(clips / rows * (1 + rows * bucket.seconds / 100) for bucket, clips, rows in BUCKETS)
    assert lines[-3] == f"an epoch is {given / own:.2f} x as fast as with the recipe's batches"


def test_rate_and_average_follow_the_batch():
    found = [Found(bucket, 100, 40, Measured(1), 10, Measured(math.inf)) for bucket, *_ in BUCKETS]

    lines = table(found, OPTIMIZER)

    assert lines[-2].startswith("a step has 4.00 times the clips; ")
    assert lines[-2].endswith("optimizer: {peak: 0.002, ema: 0.996}")


@pytest.mark.parametrize(("given", "keeps"), [(Measured(0.2), True), (Measured(0.3), False)])
def test_batches_that_are_no_faster_are_not_recommended(given, keeps):
    """A step with a quarter of the clips must take less than a quarter of the time."""
    found = [Found(bucket, 100, 40, Measured(1), 10, given) for bucket, *_ in BUCKETS]

    lines = table(found, OPTIMIZER)

    assert lines[-1].startswith("keep the recipe's batches" if keeps else "for the recipe: batches: ")


def test_a_clip_that_does_not_fit_alone_is_named():
    with pytest.raises(MemoryError, match=r"a clip of 20\.0 s with 80 labels"):
        probe(BUCKETS, lambda bucket, _: Measured(math.inf if bucket.seconds > 15 else 1), by_memory=True)


@pytest.mark.parametrize(
    "student",
    [
        STUDENT,
        STUDENT | {"transducer": {"predictor_width": 8, "joint_width": 8}},
    ],
    ids=["ctc", "tdt"],
)
def test_the_command_takes_real_steps_and_its_rows_make_a_recipe(tmp_path, capsys, student):
    manifest(tmp_path, copies=2)
    recipe_file(tmp_path, student=student)

    assert cli.main(["train", "run", str(tmp_path / "recipe.yaml"), "--probe", "--device", "cpu"]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[-6].split() == ["seconds", "labels", "clips", "batch", "step", "memory"]
    rows = [int(number) for number in out[-1].split("[")[1].split("]")[0].split(",")]
    assert len(rows) == 2
    run = new_run(tmp_path, student=student, batches={"seconds": 8, "buckets": 2, "rows": rows})
    assert [most for _, _, most in run.sampler.buckets] == rows
    with pytest.raises(RecipeError, match=r"batches\.rows has 1 numbers; there are 2 buckets"):
        new_run(tmp_path, student=student, batches={"seconds": 8, "buckets": 2, "rows": [1]})
