"""Composed sound is of one length and full of speech, and a function of the seed and the step."""

import json
import math

import numpy as np
import pytest
import torch

from tests.training.small_run import CPU, manifest, new_run
from tests.training.test_distillation import TEACHER, distilled
from training.augment import Augmenter
from training.composition import Composer, at_speed
from training.recipe_augmentation import Augmentation
from training.run import Run
from training.sampler import Position

AUGMENTATION = {
    "noise": {"share": 0.5, "snr_db": [5, 30]},
    "spec_augment": {},
}


def composer(folder, seed=0, augmentation=None, copies=1, **composition):
    manifest(folder, copies=copies)
    teacher = TEACHER | {"composition": TEACHER["composition"] | composition}
    changes = distilled(seed=seed, teacher=teacher, augmentation=augmentation or {}, batches={"seconds": 12})
    run = new_run(folder, **changes)
    return Composer(run.takes, run.recipe, 80, Augmenter(run.recipe.augmentation))


def test_rows_are_of_one_length_and_nearly_all_of_it_is_sound(tmp_path):
    compose = composer(tmp_path).batch
    lengths = set()
    for step in range(12):
        batch = compose(step, 0)
        rows, samples = batch.waveforms.shape
        lengths.add(samples / 16_000)
        assert rows == round(12 / (samples / 16_000))
        assert batch.lengths.tolist() == [samples] * rows
        assert int(batch.lengths.sum()) == batch.waveforms.numel()
        assert batch.audio_seconds == rows * samples / 16_000
        loud = batch.waveforms.reshape(rows, -1, 1600).square().mean(-1) > 1e-6
        assert loud.float().mean() > 0.6
    assert lengths == {2.0, 3.0}


def test_a_step_is_the_same_again_and_every_part_is_another_of_the_same_length(tmp_path):
    one, again = composer(tmp_path, augmentation=AUGMENTATION), composer(tmp_path, augmentation=AUGMENTATION)

    first, same, part, later = one.batch(5, 0), again.batch(5, 0), one.batch(5, 1), one.batch(6, 0)

    for name in ("waveforms", "masked_frames", "masked_mels"):
        assert torch.equal(getattr(first, name), getattr(same, name))
    assert part.waveforms.shape == first.waveforms.shape
    assert not torch.equal(part.waveforms, first.waveforms)
    assert later.position == Position(0, 6)
    batches = one.batches(Position(0, 5), range(2))
    assert torch.equal(next(batches).waveforms, first.waveforms)
    assert torch.equal(next(batches).waveforms, part.waveforms)
    batches.close()
    assert not torch.equal(composer(tmp_path, seed=1).batch(5, 0).waveforms, composer(tmp_path).batch(5, 0).waveforms)


def test_fragments_make_other_rows_than_whole_clips(tmp_path):
    whole, pieces = composer(tmp_path, fragments=0), composer(tmp_path, fragments=1)

    assert not torch.equal(whole.batch(0, 0).waveforms, pieces.batch(0, 0).waveforms)


def test_a_clip_that_cannot_be_read_is_named_and_another_one_is_taken(tmp_path):
    compose = composer(tmp_path, copies=3)
    path = tmp_path / "manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF")
    lines[0]["audio"] = str(broken)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = Run(compose._recipe, tmp_path / "again", CPU)

    batches = [Composer(run.takes, run.recipe, 80, Augmenter(Augmentation())).batch(step, 0) for step in range(6)]

    assert any("broken.wav" in line for batch in batches for line in batch.skipped)
    assert all(row.any() for batch in batches for row in batch.waveforms)


@pytest.mark.parametrize("speed", [0.5, 1.0, 1.3])
def test_another_speed_moves_a_tone(speed):
    tone = np.sin(2 * math.pi * 400 * np.arange(16_000) / 16_000).astype(np.float32)

    played = at_speed(tone, speed)

    assert len(played) == int(16_000 / speed)
    spectrum = np.abs(np.fft.rfft(played))
    assert np.argmax(spectrum) / len(played) * 16_000 == pytest.approx(400 * speed, abs=2)
