import json
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.training.bundled.recorded import ALICE, SENTENCE, Recorded
from training.bundled.collection import Origin, writing
from training.bundled.errors import SynthesisError
from training.bundled.flite import Manner
from training.bundled.readings import Reading
from training.manifest import read_manifest
from training.takes import Take

ORIGIN = Origin(seed=1, sentences="digest", voices=["alice"])
READING = Reading(SENTENCE, ALICE, Manner(speed=0.9))
SAMPLES = np.sin(np.arange(24_000) / 20).astype(np.float32) / 2


def test_training_reads_what_was_added(tmp_path):
    with writing(tmp_path, ORIGIN) as collection:
        collection.add(1234, Recorded.name, READING, SAMPLES)

    (clip,) = read_manifest(tmp_path / "manifest.jsonl", split="train")
    assert (clip.text, clip.seconds, clip.source, clip.speaker) == (SENTENCE, 1.5, "recorded", "recorded/alice")
    assert clip.audio == tmp_path / "clips" / "0001" / "0001234.flac"
    np.testing.assert_allclose(Take(clip).samples(16_000), SAMPLES, atol=1e-4)


def test_a_collection_is_gone_on_with(tmp_path):
    with writing(tmp_path, ORIGIN) as collection:
        collection.add(0, Recorded.name, READING, SAMPLES)
        collection.add(3, Recorded.name, READING, SAMPLES)

    with writing(tmp_path, ORIGIN) as collection:
        assert (collection.clips, collection.seconds, collection.next_number) == (2, 3.0, 4)


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_line_that_was_cut_short_is_cut_off(tmp_path, kept):
    with writing(tmp_path, ORIGIN) as collection:
        collection.add(0, Recorded.name, READING, SAMPLES)
    manifest = tmp_path / "manifest.jsonl"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole + whole[:kept])

    with writing(tmp_path, ORIGIN) as collection:
        assert collection.next_number == 1
        collection.add(1, Recorded.name, READING, SAMPLES)

    assert [json.loads(line)["number"] for line in manifest.read_text().splitlines()] == [0, 1]


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (Origin(2, "digest", ["alice"]), "other seed;"),
        (Origin(1, "other", ["bob"]), "other sentences and voices;"),
    ],
)
def test_clips_of_another_origin_are_not_added(tmp_path, origin, message):
    with writing(tmp_path, ORIGIN):
        pass

    with pytest.raises(SynthesisError, match=message), writing(tmp_path, origin):
        pass


def test_a_manifest_of_something_else_is_left_alone(tmp_path):
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"audio": "precious.wav", "duration": 3}')

    with pytest.raises(SynthesisError, match="holds another manifest"), writing(tmp_path, ORIGIN):
        pass

    assert manifest.read_text() == '{"audio": "precious.wav", "duration": 3}'
    assert not (tmp_path / "origin.json").exists()


@pytest.mark.parametrize("name", ["manifest.jsonl", "origin.json"])
@pytest.mark.parametrize("content", ["no json\n", "[]\n", "{}\n", "\udcff\n"])
def test_a_damaged_file_is_named(tmp_path, name, content):
    with writing(tmp_path, ORIGIN):
        pass
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))

    with pytest.raises(SynthesisError, match=f"{name} is damaged"), writing(tmp_path, ORIGIN):
        pass


def test_a_folder_has_one_writer(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.training.bundled.test_collection import ORIGIN, writing\n"
        "with writing(Path(sys.argv[1]), ORIGIN): pass\n"
    )
    command = [sys.executable, "-c", program, tmp_path]

    with writing(tmp_path, ORIGIN):
        refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    accepted = subprocess.run(command, cwd=ROOT)

    assert "SynthesisError" in refused.stderr
    assert "is being written by another run" in refused.stderr
    assert accepted.returncode == 0
