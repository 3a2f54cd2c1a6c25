"""Long recordings through the real API with a released model: the words of the clips, at their times."""

from itertools import pairwise

import pytest

from cli.scoring import Scorer
from tests.service.serving import steno_serve, wav
from tests.service.spoken import Heard, clips_of, equal_words, heard_in, in_a_row, peak_megabytes, repeated

# The front holds a window of parts and the network that finds speech, whatever a recording lasts.
MOST_MEGABYTES = 450


def check(teacher, speech_dir, tmp_path, sources, seconds, *flags):
    """Compare a long recording with its clips, each transcribed alone by the same service."""
    clips = clips_of(speech_dir, sources)
    samples, begun = in_a_row(clips, seconds)
    with steno_serve(tmp_path / "log", "--model", str(teacher), *flags) as service:
        alone = {id(clip): heard_in(service, clip.file) for clip in clips}
        heard = heard_in(service, wav(samples, subtype="PCM_16"))
        front, engine = peak_megabytes(service.process.pid), peak_megabytes(service.engine_pid())
        timing = service.events("request")[-1]

    expected = [Heard(word.word, word.start + start) for clip, start in begun for word in alone[id(clip)]]
    reference = " ".join(clip.text for clip, _ in begun)
    wer, wer_alone = (
        Scorer().score(reference, " ".join(word.word for word in words), 1.0).wer for words in (heard, expected)
    )
    pairs = equal_words(expected, heard)
    in_time = sum(abs(one.start - other.start) <= 0.2 for one, other in pairs) / len(pairs)
    print(  # noqa: T201  # the figures that the documentation quotes
        f"{len(samples) / 16_000:.0f} s: WER {wer:.2%} (clips alone {wer_alone:.2%}), {len(heard)} words, "
        f"{len(pairs)} as alone, {in_time:.2%} within 0.2 s; front {front} MB, engine {engine} MB; {timing}"
    )
    assert wer <= wer_alone + 0.005
    assert len(pairs) >= 0.95 * len(expected)
    assert in_time >= 0.95
    assert repeated(heard) <= repeated(expected)
    assert all(one.start <= other.start for one, other in pairwise(heard))
    assert front < MOST_MEGABYTES


@pytest.mark.teacher
@pytest.mark.speech
def test_a_minute_in_small_pieces_has_the_words_of_its_clips_at_their_times(teacher, speech_dir, tmp_path):
    check(teacher, speech_dir, tmp_path, ("kathleen",), 60, "--max-utterance-seconds", "8")


@pytest.mark.long
@pytest.mark.teacher
@pytest.mark.speech
@pytest.mark.parametrize("minutes", [10, 120])
def test_a_long_recording_has_the_words_of_its_clips_at_their_times(teacher, speech_dir, tmp_path, minutes):
    check(teacher, speech_dir, tmp_path, ("librispeech", "ljspeech", "arctic", "kathleen"), 60 * minutes)
