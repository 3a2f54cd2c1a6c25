"""The takes of a run lie in files: the same as in the manifests, made once, and again if something changed."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import Prompt
from tests.training.small_run import CHECKPOINT, assert_resumes, manifest, new_run, recipe_file
from tests.training.test_foreign_manifests import lines, tar, tone
from training.clip import ByteRange, Clip
from training.errors import ManifestError, RecipeError, TrainingError
from training.manifest import read_manifest
from training.recipe_file import read_recipe
from training.student import student_config
from training.take_index import _clip, _line, take_index
from training.vocabulary_file import read_vocabulary

NAMES = st.text(st.characters(codec=None), min_size=1).filter(lambda name: "\0" not in name)
CLIPS = st.builds(
    Clip,
    NAMES.map(Path),
    NAMES,
    st.floats(0.1, 60),
    st.none() | st.text(),
    NAMES,
    NAMES,
    st.tuples(st.none() | st.just("en"), st.none() | st.just("de"), st.booleans()).map(lambda of: Prompt(*of)),
    st.none() | st.floats(0, 9),
    st.none() | st.builds(ByteRange, st.integers(0, 2**50), st.integers(0, 2**40)),
    st.text(),
)


def index_of(folder, **changes):
    """The index of a recipe's takes, in ``folder``."""
    recipe = read_recipe(recipe_file(folder, **changes))
    vocabulary = read_vocabulary(CHECKPOINT)
    return take_index(folder / "takes", recipe, vocabulary, student_config(recipe.student, vocabulary.size))


def made(folder):
    """Which index there is: another one has another number."""
    return (folder / "takes" / "index.json").stat().st_ino


@given(CLIPS)
@settings(max_examples=100, deadline=None)
def test_a_clip_is_read_as_it_was_written(clip):
    assert _clip(_line(clip)) == clip
    assert _clip(_line(clip)).where == clip.where
    assert _line(clip).count(b"\n") == 1


def test_the_takes_are_those_of_the_manifests(tmp_path):
    manifest(tmp_path, copies=3)
    data = {"manifests": ["manifest.jsonl"], "speeds": [0.9, 1.1], "max_seconds": 5}

    takes = index_of(tmp_path, data=data)

    clips = read_manifest(tmp_path / "manifest.jsonl")
    wanted = [(clip, speed) for clip in clips for speed in (0.9, 1.1) if clip.seconds / speed <= 5]
    assert [(take.clip, take.speed) for take in takes] == wanted
    assert takes.seconds.tolist() == [take.seconds for take in takes]
    vocabulary = read_vocabulary(CHECKPOINT)
    assert takes.labels.tolist() == [len(vocabulary.encode(take.clip.text)) for take in takes]


def test_an_index_is_used_again_until_a_manifest_or_the_recipe_changes(tmp_path):
    manifest(tmp_path)
    digest, first = index_of(tmp_path).digest, made(tmp_path)

    assert index_of(tmp_path, steps=99, seed=4).digest == digest
    assert made(tmp_path) == first

    assert index_of(tmp_path, data={"manifests": ["manifest.jsonl"], "max_seconds": 5}).digest != digest
    second = made(tmp_path)
    manifest(tmp_path, copies=2)
    assert len(index_of(tmp_path)) == 8
    assert second != first


@pytest.mark.parametrize("name", ["takes.bin", "clips.jsonl", "index.json"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"half")])
def test_an_index_that_is_not_whole_is_made_again(tmp_path, name, damage):
    manifest(tmp_path)
    digest = index_of(tmp_path).digest
    damage(tmp_path / "takes" / name)

    again = index_of(tmp_path)

    assert again.digest == digest
    assert [take.clip for take in again] == read_manifest(tmp_path / "manifest.jsonl")


def test_an_index_that_cannot_be_written_is_one_line(tmp_path):
    manifest(tmp_path)
    (tmp_path / "takes").write_text("in the way")

    with pytest.raises(TrainingError, match=r"takes cannot be written: (File exists|Not a directory)"):
        index_of(tmp_path)


def test_what_is_wrong_with_a_transcript_is_counted_by_takes(tmp_path):
    manifest(tmp_path, texts={"espeak-2s": "the water was", "slt-1s": ""})
    audio = json.loads((tmp_path / "manifest.jsonl").read_text().splitlines()[1])

    takes = index_of(tmp_path, data={"manifests": ["manifest.jsonl"], "speeds": [0.8, 1.0, 1.25]})

    seconds = sum(audio["duration"] / speed for speed in (0.8, 1.0, 1.25))
    assert takes.survey[0].startswith("2 clips (")
    assert takes.survey[1:] == [f"transcripts: 3 takes ({seconds:.1f} s) empty"]


def test_a_name_that_no_file_can_have_is_a_missing_file(tmp_path):
    path = manifest(tmp_path)
    path.write_text(path.read_text() + json.dumps({"audio": "a" * 300, "duration": 1, "text": "a"}) + "\n")

    assert index_of(tmp_path).survey[1].startswith("skipped: 1 clip (1.0 s) no file, such as ")


def test_clips_without_a_length_are_left_out_and_counted(tmp_path):
    path = manifest(tmp_path)
    digest = index_of(tmp_path).digest
    lines = path.read_text().splitlines()
    lines[1:1] = [f'{{"audio": "a.wav", "duration": {value}, "text": "a"}}' for value in ("NaN", "-Infinity", "-1")]
    path.write_text("\n".join([*lines, '{"audio": "b.wav", "text": "b"}']) + "\n")

    takes = index_of(tmp_path)

    assert takes.digest == digest
    assert takes.survey[0].startswith("8 clips (")
    assert "trained on: 4 takes" in takes.survey[0]
    assert takes.survey[1].startswith(f"skipped: 4 clips (0.0 s) no duration above 0, such as {tmp_path}/a.wav (")
    assert len(takes.survey) == 2


def test_a_manifest_without_any_length_says_so(tmp_path):
    (tmp_path / "manifest.jsonl").write_text('{"audio": "a.wav", "text": "a"}\n')

    with pytest.raises(RecipeError, match=r"no clip lasts from .*: 1 clip .* no duration above 0, such as .*, line 1"):
        index_of(tmp_path)


def test_clips_with_too_many_labels_in_a_second_are_left_out_and_counted(tmp_path):
    manifest(tmp_path)
    every = index_of(tmp_path)

    takes = index_of(tmp_path, data={"manifests": ["manifest.jsonl"], "max_labels_per_second": 2.0})

    kept = every.labels <= 2 * every.seconds
    assert takes.seconds.tolist() == every.seconds[kept].tolist()
    assert 0 < len(takes) < len(every)
    dense = len(every) - len(takes)
    assert takes.survey[1].startswith(f"left out: {dense} take{'s' * (dense > 1)} (")
    assert "with over 2 labels a second, such as " in takes.survey[1]


def test_takes_that_are_skipped_are_not_counted_as_trained_on(tmp_path):
    path = manifest(tmp_path, texts={"espeak-2s": "the water was", "slt-1s": "and then " * 40})
    path.write_text(path.read_text() + json.dumps({"audio": "gone.wav", "duration": 1, "text": "a"}) + "\n")

    takes = index_of(tmp_path)

    assert len(takes) == 3
    assert takes.survey[0].startswith("3 clips (")
    assert "trained on: 1 take, 2." in takes.survey[0]
    assert takes.survey[1].startswith("skipped: 1 clip (1.0 s) no file")
    assert "longer than their clip's frames, which CTC leaves out" in takes.survey[2]


def test_a_bad_line_is_named_and_leaves_no_index(tmp_path):
    path = manifest(tmp_path, copies=2)
    path.write_text(path.read_text() + "{}\n")

    with pytest.raises(ManifestError, match=r"manifest\.jsonl, line 9: 'audio' is missing"):
        index_of(tmp_path)
    assert list((tmp_path / "takes").iterdir()) == []


def test_no_clip_that_fits_is_an_error(tmp_path):
    manifest(tmp_path)

    with pytest.raises(RecipeError, match=r"no clip lasts from 0\.5 to 0\.6 s"):
        index_of(tmp_path, data={"manifests": ["manifest.jsonl"], "max_seconds": 0.6})


def sharded(folder, shards=3, clips=4):
    """Tars as NeMo writes them, and a manifest whose lines are not in their order."""
    rows = []
    for shard in range(shards):
        names = {f"{shard}-{clip}.wav": tone(300 + 10 * (shard * clips + clip)) for clip in range(clips)}
        tar(folder / f"audio_{shard}.tar", names)
        rows += [{"audio_filepath": name, "duration": 1.0, "text": "a", "shard_id": shard} for name in names]
    lines(folder / "manifest.jsonl", rows[::2] + rows[1::2])


def test_manifests_of_shards_are_named_by_a_pattern(tmp_path):
    sharded(tmp_path)
    (tmp_path / "sharded_manifests").mkdir()
    rows = [json.loads(line) for line in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    for shard in range(3):
        of_shard = [row for row in rows if row["shard_id"] == shard]
        lines(tmp_path / "sharded_manifests" / f"manifest_{shard}.json", of_shard)

    takes = index_of(tmp_path, data={"manifests": ["sharded_manifests/manifest_*.json"]})

    assert sorted(take.clip.name for take in takes) == sorted(row["audio_filepath"] for row in rows)
    assert {take.clip.source for take in takes} == {tmp_path.name}
    with pytest.raises(ManifestError, match=r"part_\*\.json: no file matches"):
        index_of(tmp_path, data={"manifests": ["part_*.json"]})


def test_a_tar_that_changed_is_looked_through_again(tmp_path):
    sharded(tmp_path)
    first = index_of(tmp_path)[0].clip.byte_range
    content = {"first.wav": tone(300, seconds=2)} | {f"0-{clip}.wav": tone(300) for clip in range(4)}

    tar(tmp_path / "audio_0.tar", content)

    assert index_of(tmp_path)[0].clip.byte_range.offset > first.offset


def test_a_run_on_tars_goes_on_as_if_it_had_not_stopped(tmp_path):
    sharded(tmp_path)

    assert_resumes(lambda: new_run(tmp_path, steps=8, batches={"seconds": 2, "buckets": 1}), steps=8)


def test_memory_grows_by_some_tens_of_bytes_a_clip(tmp_path):
    def memory(clips):
        """What a run holds, and the most that it took, in bytes."""
        row = json.dumps({"audio": str(CHECKPOINT), "duration": 2.5, "text": "so and so"}) + "\n"
        (tmp_path / "manifest.jsonl").write_text(row * clips)
        tracemalloc.start()
        run = new_run(tmp_path)
        found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(run.examples.takes) == clips
        return found

    memory(10)  # what is imported and kept by all runs
    few, many = memory(200), memory(1200)

    held, most = ((after - before) / 1000 for before, after in zip(few, many, strict=True))
    assert held < 30  # takes as objects have a thousand each
    assert most < 120
