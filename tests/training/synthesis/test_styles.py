from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.synthesis.hummed import tables
from training.synthesis.errors import SynthesisError
from training.synthesis.styles import VOICES, Styles

MIXED = [voice for voice in VOICES if voice.startswith("mixed")]


def archive(content):
    file = BytesIO()
    np.savez(file, **content)
    return file.getvalue()


def table(values):
    file = BytesIO()
    np.save(file, values)
    return file.getvalue()


STACKED = np.stack(list(tables().values()))[:, :, 0]
STYLES, AGAIN = Styles(archive(tables())), Styles(archive(tables()))


@given(voice=st.sampled_from(VOICES), phonemes=st.integers(1, 600))
@settings(max_examples=50, deadline=None)
def test_a_voice_is_a_function_of_its_name(voice, phonemes):
    style = STYLES.of(voice, phonemes)

    assert style.dtype == np.float32
    assert style.shape == (1, 256)
    np.testing.assert_array_equal(style, AGAIN.of(voice, phonemes))


@given(voice=st.sampled_from(MIXED), phonemes=st.integers(1, 600))
@settings(max_examples=50, deadline=None)
def test_a_mixed_voice_lies_between_the_styles_of_its_number_of_phonemes(voice, phonemes):
    rows = STACKED[:, min(phonemes, 510) - 1]

    (style,) = STYLES.of(voice, phonemes)

    assert np.all(style >= rows.min(0) - 1e-5)
    assert np.all(style <= rows.max(0) + 1e-5)


def test_voices_differ():
    first = {voice: STYLES.of(voice, 20)[0, 0] for voice in VOICES}

    assert len(set(first.values())) == len(VOICES)


def test_stretched_voices_lie_further_from_the_mean():
    def distance(kind):
        return np.mean([abs(STYLES.of(voice, 1)[0, 0] - 0.3) for voice in VOICES if voice.startswith(kind)])

    assert 1.4 < distance("stretched") / distance("mixed") < 1.8


def test_a_voice_has_few_parents_however_many_styles_there_are():
    many = {f"table{number:02}": np.full((510, 1, 256), number == 7, np.float32) for number in range(54)}
    styles = Styles(archive(many))

    shares = [styles.of(voice, 9)[0, 0] for voice in MIXED]

    assert 0.05 < np.mean([share > 0 for share in shares]) < 0.15
    assert max(shares) > 0.5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        archive({}),
        archive({"small": np.zeros((5, 1, 256), np.float32)}),
        archive({"words": np.array(["a", "b"])}),
        archive({"objects": np.array([{}], object)}),
        archive(tables())[:1000],
        table(np.zeros((510, 1, 256), np.float32)),
    ],
)
def test_a_file_that_is_not_an_archive_of_styles_is_refused(content):
    with pytest.raises(SynthesisError, match="Kokoro's styles"):
        Styles(content)
