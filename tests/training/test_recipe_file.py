"""A recipe is read with its defaults, or refused with the key that is wrong."""

import re

import pytest
import yaml

from models import checkpoint_path
from models.bundled import CHECKPOINT
from models.checkpoint import read_checkpoint
from tests.conftest import ROOT
from tests.models.checkpoint.hub_stand_in import NAME
from tests.training.small_run import TDT, document, manifest, recipe_file
from training.errors import RecipeError
from training.recipe_file import read_recipe
from training.student import student_config

# A recipe whose second block begins in line 4.
BLOCKS = "convolutional:\n  blocks:\n  - {filters: 8, kernel_size: 3}\n"


def put(recipe, key, value):
    *sections, name = key.split(".")
    for section in sections:
        recipe = recipe.setdefault(section, {})
    recipe[name] = value


def test_values_are_read_and_defaults_filled_in(tmp_path):
    recipe = read_recipe(recipe_file(tmp_path))

    assert recipe.steps == 12
    assert recipe.student.layers == 2
    assert recipe.student.kernel_size == 9
    assert recipe.augmentation.noise.snr_db == (5.0, 30.0)
    assert recipe.augmentation.level is None
    assert recipe.data.manifests == (tmp_path / "manifest.jsonl",)  # beside the recipe


def test_checkpoints_may_be_named_as_on_the_hub(tmp_path, hub):
    teacher = {"checkpoint": NAME, "apart": {"steps": 5, "peak": 0.004}}
    manifest(tmp_path)

    recipe = read_recipe(recipe_file(tmp_path, initial=NAME, teacher=teacher, vocabulary=None))

    assert recipe.initial == recipe.teacher.checkpoint == checkpoint_path(NAME)
    assert len(hub.downloads()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"manifests": ["manifest.jsonl", "gone.jsonl"]}}, r"data\.manifests: .*gone\.jsonl: No such file"),
        ({"data": {"manifests": ["gone_*.jsonl"]}}, r"data\.manifests: .*gone_\*\.jsonl: no file matches"),
        ({"dev": {"manifest": "gone.jsonl", "every": 1}}, r"dev\.manifest: .*gone\.jsonl: No such file"),
        ({"vocabulary": "gone.model"}, r"vocabulary: .*gone\.model: No such file"),
    ],
)
def test_nothing_is_downloaded_for_a_recipe_that_names_a_file_which_is_not_there(tmp_path, hub, changes, message):
    manifest(tmp_path)

    with pytest.raises(RecipeError, match=rf"line \d+: {message}"):
        read_recipe(recipe_file(tmp_path, **{"initial": NAME} | changes))

    assert not hub.downloads()


def test_a_folder_with_a_nemo_file_stands_for_it(tmp_path):
    (tmp_path / "released").mkdir()
    (tmp_path / "released" / "model.nemo").touch()

    assert read_recipe(recipe_file(tmp_path, initial="released")).initial == tmp_path / "released" / "model.nemo"


@pytest.mark.parametrize(
    ("name", "message"), [("nobody/nothing", "nobody/nothing"), ("x" * 300, ".*xxx: File name too long")]
)
def test_a_model_that_is_nowhere_is_named_with_its_line(tmp_path, hub, name, message):
    manifest(tmp_path)

    with pytest.raises(RecipeError, match=rf"line \d+: initial: {message}"):
        read_recipe(recipe_file(tmp_path, initial=name))


def test_numbers_may_be_written_as_people_write_them(tmp_path):
    path = recipe_file(tmp_path)
    path.write_text(path.read_text().replace("0.003", "3e-3"))

    assert read_recipe(path).optimizer.peak == 0.003


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("colour", 1, "unknown key colour"),
        ("student.depth", 3, "unknown key student.depth"),
        ("augmentation.noise.snr", [1, 2], "unknown key augmentation.noise.snr"),
        ("steps", 0, "steps is 0"),
        ("steps", 1.5, "steps is 1.5; it must be a whole number"),
        ("steps", True, "steps is True"),
        ("optimizer.peak", "fast", "optimizer.peak is 'fast'"),
        ("optimizer.peak", float("nan"), "optimizer.peak is nan"),
        ("optimizer.peak", 10**400, "optimizer.peak is 1000"),
        ("optimizer.matrices", "adamw", "optimizer.matrices is 'adamw'; it may be muon"),
        ("data.manifests", [], "data.manifests must be a list of at least 1"),
        ("data.manifests", "one.jsonl", "data.manifests must be a list"),
        ("data.speeds", [0.9, 9.0], "data.speeds is 9.0; it must be within 0.5 and 2"),
        ("augmentation.noise.snr_db", [30, 5], "augmentation.noise.snr_db must go from low to high"),
        ("augmentation.noise.snr_db", [30], "augmentation.noise.snr_db must be a list of 2"),
        ("student", 3, "student must have keys and values"),
        ("student.heads", 3, "student: width 16 must be an even multiple of heads, 3"),
        ("student.kernel_size", 4, "student: kernel_size 4 must be odd"),
        ("student.subsampling_factor", 6, "student: subsampling_factor 6 must be a power of two"),
        ("student.transducer", TDT | {"durations": [0]}, "durations [0] must ascend and end above 0"),
        ("student.transducer", TDT | {"durations": [2, 1]}, "durations [2, 1] must ascend and end above 0"),
        ("student.transducer", TDT | {"durations": [0, 65]}, "student.transducer.durations is 65"),
        ("precision", "float8", "precision is 'float8'; it may be float32, tf32, bfloat16, float16"),
        ("vocabulary", None, "teacher, vocabulary, characters or languages must be there"),
        ("student", None, "student, convolutional or initial must be there"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, key, value, message):
    path = tmp_path / "recipe.yaml"
    recipe = document(tmp_path)
    put(recipe, key, value)
    path.write_text(yaml.safe_dump(recipe))

    with pytest.raises(RecipeError) as caught:
        read_recipe(path)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 3\nbatches:\n  seconds: 0\n  buckets: 2\n", "line 3: batches.seconds is 0.0"),
        ("steps: 3\n\nstpes: 4\n", "line 3: unknown key stpes"),
        ("steps: 3\ndata: {split: dev}\n", "line 2: data.manifests is missing"),
        ("data: {manifests: [a]}\nstudent:\n  layers: 1\n  width: 15\n  heads: 2\n", "line 2: student: width 15"),
        ("steps: 3\ndata: {manifests: [a]}\nsteps: 4\n", "line 3: steps stands there twice, first in line 1"),
        (f"{BLOCKS}  - {{filters: 8, kernel_size: 4}}\n", "line 4: convolutional.blocks[1]: kernel_size 4 must be odd"),
        (f"{BLOCKS}  - filters: 8\n    kernel_size: 0\n", "line 5: convolutional.blocks[1].kernel_size is 0"),
        (f"{BLOCKS}  - filters: 8\n", "line 4: convolutional.blocks[1].kernel_size is missing"),
        (f"{BLOCKS}  - 8\n", "line 4: convolutional.blocks[1] must have keys and values"),
        (f"{BLOCKS}  - filters: 8\n    filters: 8\n", "line 5: convolutional.blocks[1].filters stands there twice"),
        ("data:\n  speeds: [1, fast]\n", "line 2: data.speeds is 'fast'"),
    ],
)
def test_the_line_is_named(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)

    with pytest.raises(RecipeError, match=re.escape(message)):
        read_recipe(path)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"a: [", b"a: &a [*a]", b"\xff\xfe\x00", b"? [a]\n: b"])
def test_a_file_that_is_not_a_recipe_is_refused(tmp_path, content):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)

    with pytest.raises(RecipeError):
        read_recipe(path)


def test_the_recipe_of_the_bundled_model_is_valid_and_has_its_shape():
    recipe = read_recipe(ROOT / "training" / "recipes" / "english.yaml")

    assert recipe.teacher.checkpoint.resolve() == ROOT / "runs" / "data" / "teacher.nemo"
    encoder = student_config(recipe.student, 1024).encoder
    assert encoder == read_checkpoint(CHECKPOINT).config.encoder
