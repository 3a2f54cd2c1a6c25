"""Phrases of a voice become another sentence: whole words, their own sound and frames, no longer than asked."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.clip import Clip
from training.decoded import DecodedTakes
from training.posteriors import record_type
from training.recipe import Splice
from training.splice import Splicer, phrases
from training.takes import Take

FRAME = 640
PIECES = ("▁one", "▁two", "▁three", "▁four", "teen")
TEXTS = ("one", "two", "three", "four", "fourteen")
ALWAYS = Splice(share=1.0, seconds=(0.1, 0.6), clips=2)


def recording(words, gap):
    """Return the frames and the samples of words: two loud frames a piece, and ``gap`` quiet ones around each word.

    Every word has a tone of its own, so that the samples show which words they have.
    """
    labels, tones = [-1] * gap, [0] * gap
    for word in words:
        for piece in [3, 4] if word == "fourteen" else [TEXTS.index(word)]:
            labels += [piece, piece]
            tones += [TEXTS.index(word) + 1] * 2
        labels += [-1] * gap
        tones += [0] * gap
    frames = np.zeros(len(labels), record_type(1))
    frames["blank"] = [0.9 if label < 0 else 0.1 for label in labels]
    frames["masses"][:, 0] = 1 - frames["blank"]
    frames["labels"][:, 0] = [max(0, label) for label in labels]
    tone = np.repeat(np.asarray(tones, np.float32), FRAME)
    return frames, 0.1 * tone * np.sign(np.sin(np.arange(len(tone), dtype=np.float32)))


@dataclass(frozen=True)
class RecordedTake(Take):
    """A take whose samples are in memory."""

    sound: tuple[float, ...] = ()

    def samples(self, rate):
        assert rate == 16_000
        return np.asarray(self.sound, np.float32)


class Voice:
    """Clips of a voice, and a teacher's posteriors of them."""

    ratio, frame_samples, pieces = 2, FRAME, PIECES

    def __init__(self, sentences, gap=3, texts=True):
        self.takes, self._frames = [], {}
        for number, words in enumerate(sentences):
            frames, samples = recording(words, gap)
            text = " ".join(words) if texts else None
            clip = Clip(f"{number}.wav", f"{number}.wav", len(samples) / 16_000, text, "set", "voice")
            self._frames[clip.audio] = frames
            self.takes.append(RecordedTake(clip, 1.0, tuple(samples.tolist())))

    def of(self, take):
        return self._frames[take.clip.audio]


def heard(samples):
    """Return the words whose tones are in samples, each as often as it occurs."""
    levels = np.rint(10 * np.abs(samples)).astype(int)
    said = [int(level) for level in levels[np.insert(np.diff(levels) != 0, 0, values=True)]]
    return [TEXTS[level - 1] for level in said if level > 0]


SENTENCES = st.lists(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), min_size=2, max_size=6)


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_the_phrases_of_a_clip_are_its_words_in_order_and_lie_side_by_side(words, gap):
    voice = Voice([words], gap)
    take = voice.takes[0]

    found = phrases(take.samples(16_000), take, voice)

    assert [word for phrase in found for word in phrase.words] == words
    assert found[0].start == 0
    assert found[-1].end == len(voice.of(take))
    assert all(one.end == other.start for one, other in itertools.pairwise(found))
    assert all(phrase.end > phrase.start for phrase in found)


def test_words_without_a_quiet_moment_between_them_stay_together():
    voice = Voice([["one", "two", "three"]])
    take = voice.takes[0]
    noisy = take.samples(16_000) + 0.1

    (phrase,) = phrases(noisy, take, voice)

    assert phrase.words == ("one", "two", "three")


def transcribed(take, text):
    clip = replace(take.clip, text=text)
    return RecordedTake(clip, 1.0, take.sound)


@pytest.mark.parametrize(
    ("heard_as", "text", "usable"),
    [
        (["one", "two", "three"], "one too three", ["one", "three"]),
        (["one", "two", "three", "four"], "one two four", ["one", "two", "four"]),
        (["one", "two", "three", "four"], "one two and three four", ["one", "four"]),
        (["one", "two", "three"], "and one two three", ["two", "three"]),
        (["one", "two", "three"], "one two three and", ["one", "two"]),
        (["one", "two"], "three four", []),
    ],
    ids=["wrong", "invented", "missed", "missed at the start", "missed at the end", "all wrong"],
)
def test_words_that_the_teacher_got_wrong_and_neighbours_of_missed_ones_are_left_out(heard_as, text, usable):
    voice = Voice([heard_as])
    take = transcribed(voice.takes[0], text)

    found = phrases(take.samples(16_000), take, voice)

    assert [word for phrase in found for word in phrase.words] == usable


def test_a_part_does_not_reach_over_a_word_that_was_left_out():
    voice = Voice([["one", "two", "three"]] * 2)
    takes = [transcribed(take, "one too three") for take in voice.takes]
    splicer = Splicer(takes, voice, Splice(share=1.0, seconds=(5.0, 6.0), clips=2), DecodedTakes())

    spoken = [splicer.spoken(takes[0], np.random.default_rng(seed)) for seed in range(20)]

    assert any(spoken)
    assert all(heard(part.samples) == part.text.split() for part in spoken if part)


@given(SENTENCES, st.booleans(), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_what_is_said_is_what_the_text_says_and_what_the_frames_say(sentences, texts, seed):
    voice = Voice(sentences, texts=texts)
    take = voice.takes[0]

    spoken = Splicer(voice.takes, voice, ALWAYS, DecodedTakes()).spoken(take, np.random.default_rng(seed))

    if spoken is not None:
        assert heard(spoken.samples) == spoken.text.split()
        assert len(spoken.samples) == FRAME * len(spoken.frames)
        assert len(spoken.samples) <= round(take.seconds * 16_000)
        loud = np.abs(spoken.samples.reshape(-1, FRAME)).max(axis=1) > 0.01
        assert np.array_equal(loud, spoken.frames["blank"] < 0.5)


def test_other_sentences_come_out_than_went_in_and_the_same_again_from_the_same_seed():
    voice = Voice([["one", "two"], ["three", "four"], ["four", "one", "two", "fourteen"]])
    splicer = Splicer(voice.takes, voice, ALWAYS, DecodedTakes())

    texts = [splicer.spoken(voice.takes[2], np.random.default_rng(seed)).text for seed in range(40)]
    again = [splicer.spoken(voice.takes[2], np.random.default_rng(seed)).text for seed in range(40)]

    assert texts == again
    assert len(set(texts)) > 10


@pytest.mark.parametrize("config", [Splice(share=0.0, clips=2), Splice(share=1.0, clips=3)])
def test_a_share_of_the_clips_of_a_voice_with_enough_of_them_is_spliced(config):
    voice = Voice([["one", "two"], ["three", "four"]])
    takes = [*voice.takes, *(replace(take, speed=0.9) for take in voice.takes)]

    assert Splicer(takes, voice, config, DecodedTakes()).spoken(takes[0], np.random.default_rng(0)) is None


def test_takes_at_another_speed_are_another_voice():
    voice = Voice([["one", "two"], ["two", "one"], ["three", "four"], ["four", "three"]])
    takes = [*voice.takes[:2], *(replace(take, speed=0.9) for take in voice.takes[2:])]
    splicer = Splicer(takes, voice, ALWAYS, DecodedTakes())

    spoken = [splicer.spoken(takes[0], np.random.default_rng(seed)) for seed in range(20)]

    assert {word for part in spoken if part for word in part.text.split()} == {"one", "two"}
