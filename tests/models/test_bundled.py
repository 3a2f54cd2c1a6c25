"""The bundled model: small, without words where there is no speech, and with the same tokens in every batch."""

import json
from functools import cache

import numpy as np
import pytest

from models import CheckpointError, checkpoint_path, load_model
from models.bundled import CHECKPOINT, LANGUAGE_MODEL
from tests.models import golden_data as golden
from tests.models.companions import told

RATE = 16_000
SECONDS = 10


@cache
def bundled():
    return load_model("bundled")


def greedy():
    return golden.model("bundled")


def test_its_name_stands_for_the_file_in_the_package_and_other_names_for_themselves(tmp_path):
    assert checkpoint_path("bundled") == CHECKPOINT
    assert CHECKPOINT.parent.name == "bundled"
    assert checkpoint_path("bundled.nemo").name == "bundled.nemo"
    assert checkpoint_path(tmp_path / "bundled") == tmp_path / "bundled"


def test_a_package_without_its_weights_says_which_file_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("models.bundled.CHECKPOINT", tmp_path / "steno-bundled.nemo")

    with pytest.raises(CheckpointError, match=r"steno-bundled\.nemo"):
        load_model("bundled")


def test_it_speaks_english_and_a_checkpoint_does_not_say(monkeypatch):
    checkpoint = golden.GOLDEN / "fastconformer-ctc-bpe" / "model.nemo"
    monkeypatch.setattr("models.bundled.CHECKPOINT", checkpoint)

    assert load_model("bundled", language_model="none").info()["languages"] == ["en"]
    assert load_model(checkpoint).info()["languages"] is None


def test_it_is_small_enough_for_a_repository():
    assert CHECKPOINT.stat().st_size + LANGUAGE_MODEL.stat().st_size < 32e6


@pytest.mark.slow
def test_its_language_model_can_be_left_out():
    assert bundled().info()["language_model"] > 100_000
    assert greedy().info()["language_model"] is None
    assert bundled().weight_bytes > greedy().weight_bytes + LANGUAGE_MODEL.stat().st_size
    searched, plain = (
        [hypothesis.text for hypothesis in model.transcribe(golden.clips())] for model in (bundled(), greedy())
    )
    assert searched != plain


def test_a_language_model_is_for_a_ctc_decoder_or_a_transducer_with_its_vocabulary():
    with pytest.raises(ValueError, match="for CTC and transducers"):
        load_model(golden.GOLDEN / "canary-small" / "model.nemo", language_model=LANGUAGE_MODEL)
    with pytest.raises(CheckpointError, match="this model's vocabulary"):
        load_model(golden.GOLDEN / "fastconformer-ctc-bpe" / "model.nemo", language_model=LANGUAGE_MODEL)
    with pytest.raises(CheckpointError, match=r"no\.ngrams"):
        load_model("bundled", language_model="no.ngrams")


def test_its_transcripts_are_those_of_its_card():
    info = bundled().info()
    card = CHECKPOINT.with_name("MODEL_CARD.md").read_text(encoding="utf-8")

    assert f"| parameters | {info['parameters']:,} |" in card
    assert f"| layers, width | {info['layers']}, {info['width']} |" in card
    assert f"| vocabulary | {info['vocabulary']['size']:,} " in card
    assert info["decoders"] == ["ctc"]


def noise(exponent):
    """Noise whose power falls with frequency to the power of ``exponent``: 0 is white, 1 is pink."""
    spectrum = np.fft.rfft(np.random.default_rng(5).standard_normal(SECONDS * RATE))
    frequencies = np.maximum(np.fft.rfftfreq(SECONDS * RATE, 1 / RATE), 20)
    return np.fft.irfft(spectrum * frequencies ** (-exponent / 2))


def tone(hertz, seconds=SECONDS):
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)


def struck(hertz, seconds):
    """A note with six harmonics, which begins at once and fades."""
    harmonics = sum(tone(number * hertz, seconds) / number**1.5 for number in range(1, 7))
    time = np.arange(len(harmonics)) / RATE
    return harmonics * np.minimum(time / 0.01, 1) * np.exp(-2.5 * time)


def music():
    """Twenty chords of three notes each: C, A minor, F and G, broken at every other beat."""
    chords = [(261.6, 329.6, 392.0), (220.0, 261.6, 329.6), (174.6, 220.0, 261.6), (196.0, 246.9, 293.7)]
    beat = SECONDS / 20
    played = []
    for number in range(20):
        notes = [struck(hertz, beat) for hertz in chords[number // 2 % len(chords)]]
        delays = [int(index * beat * RATE / 4) * (number % 2) for index in range(len(notes))]
        played.append(sum(np.pad(note, (delay, 0))[: len(note)] for note, delay in zip(notes, delays, strict=True)))
    return np.concatenate(played)


SOUNDS = {
    "silence": np.zeros(SECONDS * RATE),
    "white noise": noise(0),
    "pink noise": noise(1),
    "hum": sum(tone(50 * number) / number for number in (1, 2, 3, 5)),
    "tone": tone(440),
    "music": music(),
}


@pytest.mark.parametrize("sound", SOUNDS)
def test_it_writes_next_to_nothing_without_speech(sound):
    samples = SOUNDS[sound]
    level = np.sqrt(np.mean(samples**2)) or 1.0

    (hypothesis,) = bundled().transcribe([(0.1 * samples / level).astype(np.float32)])

    assert len(hypothesis.words) <= (sound == "music"), hypothesis.text


def thousand_phrases(model):
    """The words that are tokens, and pairs of them."""
    words = [text[1:].decode() for text in model.token_bytes if text.startswith(b" ") and len(text) > 1]
    pairs = [f"{one} {other}" for one, other in zip(words, words[7:], strict=False)]
    return "\n".join([*words, *pairs][:1000])


@pytest.mark.slow
@pytest.mark.parametrize("model", [bundled, greedy])
def test_phrases_are_never_written_over_what_is_no_speech(model):
    minutes = [np.tile(samples, 60 // SECONDS) for samples in SOUNDS.values()]
    minutes = [(0.1 * one / (np.sqrt(np.mean(one**2)) or 1.0)).astype(np.float32) for one in minutes]

    plain, *others = (model().transcribe(minutes, phrases=lists) for lists in ("", "the", thousand_phrases(model())))

    assert [[one.tokens for one in found] for found in others] == [[one.tokens for one in plain]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("device", golden.DEVICES)
def test_with_its_language_model_golden_clips_have_the_same_texts_alone_and_together_on_any_device(device):
    model, clips = load_model("bundled", device=device), golden.clips()

    together = model.transcribe(clips)

    assert [one.tokens for one in together] == [model.transcribe([clip])[0].tokens for clip in clips]
    assert [one.text for one in together] == [one.text for one in bundled().transcribe(clips)]


@pytest.mark.slow
@pytest.mark.speech
def test_with_its_language_model_transcripts_are_the_same_alone_and_together(speech_dir):
    import soundfile  # a GPU machine may have none, and collects this file

    lines = (speech_dir / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    dev = [clip["audio"] for clip in map(json.loads, lines) if clip["split"] == "dev"][::6]
    pcm = [soundfile.read(speech_dir / audio, dtype="float32")[0] for audio in dev]

    together = bundled().transcribe(pcm)

    alone = [bundled().transcribe([samples])[0] for samples in pcm]
    # None differed when this was written; among this many texts, a decision may be a draw.
    assert sum(told(one) != told(other) for one, other in zip(alone, together, strict=True)) <= 1
