"""Recordings of noise and rooms come from folders, as loud as asked for, the same for the same seed."""

import numpy as np
import pytest
import soundfile

from tests.training.small_run import assert_resumes, finish, new_run
from tests.training.test_augment import RATE, decibels, speech
from training.augment import Augmenter
from training.errors import RecipeError, ResumeError
from training.recipe_augmentation import Augmentation, RecordedNoise, RecordedRooms


def sound(path, samples, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype="FLOAT")


def folders(folder):
    """A folder of noise, one of it short, with a text beside it, and one of rooms."""
    time = np.arange(3 * RATE) / RATE
    sound(folder / "noise" / "a" / "hum.wav", 0.3 * np.sin(2 * np.pi * 440 * time))
    sound(folder / "noise" / "short.wav", 0.3 * np.sin(2 * np.pi * 440 * time[: RATE // 20]))
    (folder / "noise" / "LICENSE").write_text("as you like")
    answer = np.zeros(800)
    answer[100], answer[300] = 0.9, 0.45
    sound(folder / "rooms" / "small.wav", answer)


def noise(folder, snr_db=(10.0, 10.0)):
    folders(folder)
    config = Augmentation(recorded_noise=RecordedNoise(folders=(folder / "noise",), share=1, snr_db=snr_db))
    return Augmenter(config)


@pytest.mark.parametrize("samples", [1, 700, RATE, 5 * RATE])
def test_noise_is_a_part_of_a_recording_at_the_ratio_asked_for(tmp_path, samples):
    augmenter = noise(tmp_path)
    clip = speech(samples)

    heard = [augmenter.augmented(clip, np.random.default_rng(n)) for n in (1, 1, 2)]

    assert heard[0].shape == clip.shape
    assert heard[0].dtype == np.float32
    assert np.array_equal(heard[0], heard[1])
    if samples > 1:
        assert not np.array_equal(heard[0], heard[2])
        assert decibels(clip, heard[0] - clip) == pytest.approx(10, abs=0.2)
    if samples > RATE // 2:
        spectrum = np.abs(np.fft.rfft(heard[0] - clip))
        assert spectrum.argmax() * RATE / samples == pytest.approx(440, abs=25)


def test_a_room_answers_where_the_sound_is_and_keeps_its_loudness(tmp_path):
    folders(tmp_path)
    config = Augmentation(recorded_rooms=RecordedRooms(folders=(tmp_path / "rooms",), share=1))
    click = np.zeros(RATE, dtype=np.float32)
    click[1000] = 0.5

    heard = Augmenter(config).augmented(click, np.random.default_rng(0))

    assert np.abs(heard).argmax() == 1000
    assert heard[1200] == pytest.approx(heard[1000] / 2, rel=1e-3)
    assert np.abs(np.delete(heard, [1000, 1200])).max() < 1e-4
    assert np.mean(heard**2) == pytest.approx(np.mean(click**2), rel=1e-3)


def test_what_is_in_the_folders_is_reported(tmp_path):
    (recordings,) = noise(tmp_path).recordings

    assert recordings.survey == (
        "augmentation.recorded_noise.folders: files of sound: 2, 3.0 s; "
        f"left out: 1 of other kinds, such as {tmp_path / 'noise' / 'LICENSE'}"
    )


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_without_recordings_is_refused_by_its_key(tmp_path, name):
    (tmp_path / "empty").mkdir()
    config = Augmentation(recorded_rooms=RecordedRooms(folders=(tmp_path / name,), share=1))

    with pytest.raises(RecipeError, match=f"there is no recording in .*{name}") as raised:
        Augmenter(config)

    assert raised.value.key == "augmentation.recorded_rooms.folders"


def run_of(folder):
    augmentation = {
        "recorded_noise": {"folders": ["noise"], "share": 0.7, "snr_db": [0, 20]},
        "recorded_rooms": {"folders": ["rooms"], "share": 0.7},
    }
    return new_run(folder, steps=6, augmentation=augmentation)


def test_a_run_with_recordings_resumes_as_if_it_had_not_stopped_but_not_with_others(tmp_path):
    folders(tmp_path)

    assert_resumes(lambda: run_of(tmp_path))

    line = "augmentation.recorded_noise.folders: files of sound: 2, "
    assert any(one.startswith(line) for one in run_of(tmp_path).survey)
    sound(tmp_path / "rooms" / "other.wav", np.ones(1000))
    with pytest.raises(ResumeError, match="other values of recordings"):
        run_of(tmp_path).resume()


def test_a_clip_whose_noise_does_not_decode_is_skipped_and_named(tmp_path):
    folders(tmp_path)
    run = run_of(tmp_path)
    for path in (tmp_path / "noise").rglob("*.wav"):
        path.unlink()

    lines = finish(run)

    assert any(line.startswith("skipped: ") and ".wav: No such file" in line for line in lines)
