"""A draw always gives the same example, and a batch holds its examples and nothing else."""

import numpy as np
import pytest

from tests.training.small_run import CHECKPOINT, manifest
from training.augment import Augmenter
from training.batch import collate
from training.examples import Examples
from training.manifest import read_manifest
from training.recipe_augmentation import Augmentation, Noise, SpecAugment
from training.recipe_shapes import Student
from training.sampler import Draw, Position
from training.student import student_config
from training.takes import Take
from training.vocabulary_file import read_vocabulary

VOCABULARY = read_vocabulary(CHECKPOINT)
CONFIG = student_config(Student(layers=1, width=8, heads=2), VOCABULARY.size)
AUGMENTATION = Augmentation(spec_augment=SpecAugment(), noise=Noise(share=1.0, snr_db=(5, 5)))


def takes(folder):
    return [Take(clip) for clip in read_manifest(manifest(folder))]


def examples(folder, some=None, augmentation=AUGMENTATION, seed=0):
    return Examples(some or takes(folder), VOCABULARY, Augmenter(augmentation), seed, CONFIG)


def test_the_same_draw_gives_the_same_and_another_another(tmp_path):
    make = examples(tmp_path).make
    first, again = make(1, Draw(0, 0)), examples(tmp_path).make(1, Draw(0, 0))
    others = [make(2, Draw(0, 0)), make(1, Draw(0, 1)), examples(tmp_path, seed=1).make(1, Draw(0, 0))]

    assert np.array_equal(first.samples, again.samples)
    assert np.array_equal(first.masked_frames, again.masked_frames)
    assert all(not np.array_equal(first.samples, other.samples) for other in others)


def test_without_augmentation_a_clip_is_what_it_is(tmp_path):
    one = examples(tmp_path, augmentation=Augmentation()).make(0, Draw(0, 0))

    assert np.array_equal(one.samples, takes(tmp_path)[0].samples(16_000))
    assert not one.masked_frames.any()
    assert not one.masked_mels.any()
    assert VOCABULARY.tokenizer.join(one.tokens.tolist()) == "the water was"


def test_a_batch_holds_its_clips_and_zeros(tmp_path):
    some = takes(tmp_path)
    make = examples(tmp_path, some).make
    made = [make(0, Draw(index, 0)) for index in range(len(some))]

    batch = collate(made, Position(3, 4), samples=16_000)

    longest = max(len(one.samples) for one in made)
    assert batch.position == Position(3, 4)
    assert batch.waveforms.shape == (len(made), longest)
    assert batch.masked_frames.shape == (len(made), longest // 160)
    assert batch.audio_seconds == pytest.approx(sum(len(one.samples) for one in made) / 16_000)
    for row, one in enumerate(made):
        parts = (
            (batch.waveforms, one.samples),
            (batch.masked_frames, one.masked_frames),
            (batch.tokens, one.tokens),
        )
        for padded, part in parts:
            assert np.array_equal(padded[row, : len(part)].numpy(), part)
            assert not padded[row, len(part) :].any()
        assert batch.lengths[row] == len(one.samples)
        assert batch.token_lengths[row] == len(one.tokens)


def test_clips_shorter_than_their_bucket_are_padded_to_it(tmp_path):
    make = examples(tmp_path).make

    batch = collate([make(0, Draw(1, 0))], Position(), samples=64_000)

    assert batch.waveforms.shape == (1, 64_000)
    assert batch.masked_frames.shape == (1, 400)
