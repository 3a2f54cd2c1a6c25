"""A teacher labels every take once, with what its model computes."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

from models import load_model
from models.checkpoint import read_checkpoint
from models.network import Network
from tests.conftest import GOLDEN
from tests.models.checkpoint.transformers_files import folder
from tests.training.small_run import CHECKPOINT, TEXTS, manifest
from training import labelling
from training.clip import ByteRange, Clip
from training.distillation import greedy_labels
from training.errors import RecipeError
from training.labelling import labelled
from training.manifest import read_manifest
from training.recipe import Teacher
from training.takes import Take
from training.teacher import TeacherModel

CPU = torch.device("cpu")


def takes(folder, speeds=(1.0,)):
    return [Take(clip, speed) for clip in read_manifest(manifest(folder)) for speed in speeds]


def label(folder, some, checkpoint=CHECKPOINT, stride=16, hidden=False):
    teacher = Teacher(checkpoint=checkpoint, cache=folder / "cache", labels=4, hidden=hidden)
    return labelled(some, teacher, stride, CPU, "float32")


def test_posteriors_are_those_of_the_checkpoint(tmp_path):
    some = takes(tmp_path, speeds=(0.9, 1.0))
    teacher = label(tmp_path, some)
    model, checkpoint = load_model(CHECKPOINT), read_checkpoint(CHECKPOINT)
    network = Network(checkpoint.config)
    network.load_state_dict(checkpoint.state)

    for take in some:
        encoded, _ = model.encode(*model.features([take.samples(16_000)]))
        with torch.no_grad():
            expected = network.ctc(encoded)[0].softmax(-1).numpy()
        frames = teacher.of(take)
        assert len(frames) == len(expected)
        np.testing.assert_allclose(frames["blank"], expected[:, -1], atol=1e-3)
        for record, row in zip(frames, expected, strict=True):
            np.testing.assert_allclose(record["masses"], np.sort(row[:-1])[::-1][:4], atol=1e-3)
            np.testing.assert_allclose(row[record["labels"]], record["masses"], atol=1e-3)


def test_frames_of_its_encoder_are_kept_where_they_are_asked_for(tmp_path):
    some = takes(tmp_path)
    without, teacher = label(tmp_path, some), label(tmp_path, some, hidden=True)
    model = load_model(CHECKPOINT)

    for take in some:
        encoded, _ = model.encode(*model.features([take.samples(16_000)]))
        frames = teacher.of(take)
        assert np.abs(frames["hidden"] - encoded[0].numpy()).max() < 2e-3 * np.abs(encoded.numpy()).max()
        assert without.of(take)["hidden"].size == 0
        assert np.array_equal(frames["labels"], without.of(take)["labels"])
    assert (without.width, teacher.width) == (0, 2 * encoded.size(2))


def test_it_may_be_a_folder_that_transformers_wrote(tmp_path):
    some = takes(tmp_path)
    checkpoint = folder(tmp_path / "saved", "ctc")

    teacher = label(tmp_path, some, checkpoint)

    assert [greedy_labels(teacher.of(take)) for take in some] == [
        list(one.tokens) for one in load_model(checkpoint).transcribe([take.samples(16_000) for take in some])
    ]


def test_its_transcript_is_the_models(tmp_path):
    some = takes(tmp_path)
    teacher = label(tmp_path, some)
    hypotheses = load_model(CHECKPOINT).transcribe([take.samples(16_000) for take in some])

    assert [greedy_labels(teacher.of(take)) for take in some] == [list(one.tokens) for one in hypotheses]


@pytest.mark.parametrize("speeds", [(0.9, 1.0, 1.1), (0.95, 1.3)])
def test_the_transcript_of_a_clip_is_that_of_its_speed_or_the_nearest(tmp_path, speeds):
    some = takes(tmp_path, speeds)
    teacher = label(tmp_path, some)
    nearest = [take for take in some if take.speed in (1.0, 0.95)]

    transcripts = [teacher.transcript(take.clip) for take in nearest]

    join = read_checkpoint(CHECKPOINT).tokenizer.join
    assert transcripts == [join(greedy_labels(teacher.of(take))) for take in nearest]


def test_what_is_on_disk_is_not_computed_again(tmp_path, monkeypatch):
    some = takes(tmp_path)
    label(tmp_path, some[:2])
    heard = counting(monkeypatch)

    label(tmp_path, some)
    label(tmp_path, some)

    assert len(heard) == len(TEXTS) - 2


def counting(monkeypatch):
    """Collect every clip that a teacher labels from now on."""
    heard = []
    real = TeacherModel.posteriors
    monkeypatch.setattr(TeacherModel, "posteriors", lambda self, clips: heard.extend(clips) or real(self, clips))
    return heard


def test_a_clip_that_is_listed_twice_is_labelled_once(tmp_path, monkeypatch):
    monkeypatch.setattr(labelling, "_BATCH_SECONDS", 1.0)  # a batch a clip
    heard = counting(monkeypatch)
    some = takes(tmp_path)

    label(tmp_path, some + some)

    assert len(heard) == len(TEXTS)


def test_the_teacher_labels_the_named_sources_at_all_of_their_speeds(tmp_path):
    some = [replace(take, clip=replace(take.clip, source=take.clip.name)) for take in takes(tmp_path, (0.9, 1.0))]
    source = some[0].clip.source
    teacher = Teacher(checkpoint=CHECKPOINT, cache=tmp_path / "cache", sources=(source,))

    labels = labelled(some, teacher, 16, CPU, "float32")

    heard = [take for take in some if labels.of(take) is not None]
    assert [(take.clip.source, take.speed) for take in heard] == [(source, 0.9), (source, 1.0)]
    assert labels.transcript(some[0].clip)
    assert labels.transcript(some[-1].clip) is None


def test_a_file_that_changed_is_labelled_again(tmp_path, monkeypatch):
    heard = counting(monkeypatch)
    audio = tmp_path / "clip.wav"
    take = Take(Clip(audio, "clip.wav", 2.0, None, "some", "one"))

    for name in ("noise-2s", "noise-2s", "espeak-2s"):
        audio.write_bytes((GOLDEN / "clips" / f"{name}.wav").read_bytes())
        label(tmp_path, [Take(replace(take.clip, seconds=soundfile.info(audio).duration))])

    assert len(heard) == 2


def test_a_recording_in_a_tar_has_the_labels_of_its_own_file(tmp_path, monkeypatch):
    heard = counting(monkeypatch)
    content = (GOLDEN / "clips" / "noise-2s.wav").read_bytes()
    (tmp_path / "clip.wav").write_bytes(content)
    (tmp_path / "clips.tar").write_bytes(bytes(512) + content)
    clip = Clip(tmp_path / "clip.wav", "clip.wav", 2.0, None, "some", "one")

    for one in (clip, replace(clip, audio=tmp_path / "clips.tar", byte_range=ByteRange(512, len(content)))):
        label(tmp_path, [Take(one)])

    assert len(heard) == 1


def test_recordings_of_one_length_that_begin_alike_are_told_apart(tmp_path, monkeypatch):
    heard = counting(monkeypatch)
    silence, noise = np.zeros(9 * 16_000), 0.1 * np.random.default_rng(0).standard_normal((2, 16_000))
    for name, end in zip(("one.wav", "two.wav"), noise, strict=True):
        soundfile.write(tmp_path / name, np.concatenate([silence, end]), 16_000)
    clips = [Clip(tmp_path / name, name, 10.0, None, "some", "one") for name in ("one.wav", "two.wav")]

    # Whole, and their last seconds; of each recording's two clips none is taken for the other.
    ends = [replace(clip, start=start, seconds=1.0) for clip in clips for start in (8.0, 9.0)]
    label(tmp_path, [Take(clip) for clip in clips + ends])

    assert len(heard) == 6


@pytest.mark.parametrize(
    ("name", "stride", "message"),
    [
        ("fastconformer-rnnt-bpe", 16, "no CTC head"),
        ("fastconformer-ctc-bpe", 4, "4 features, no multiple of the teacher's 8"),
        ("there-is-none", 16, "no checkpoint"),
    ],
)
def test_a_teacher_that_cannot_be_used_is_refused(tmp_path, name, stride, message):
    with pytest.raises(RecipeError, match=message):
        label(tmp_path, takes(tmp_path), GOLDEN / name / "model.nemo", stride)


def test_a_file_of_the_teacher_that_cannot_be_read_is_named(tmp_path):
    checkpoint = folder(tmp_path / "saved", "ctc")
    (checkpoint / "README.md").symlink_to("gone")

    with pytest.raises(RecipeError, match=r"README\.md: No such file") as raised:
        label(tmp_path, takes(tmp_path), checkpoint)

    assert raised.value.key == "teacher.checkpoint"
