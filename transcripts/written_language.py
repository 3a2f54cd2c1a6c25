"""The language that a model itself says its text is in, by tags among its tokens."""

from collections.abc import Mapping, Sequence

from transcripts.spoken_language import Spoken
from transcripts.transcript import Transcript
from transcripts.transcription import Part


def written_language(transcript: Transcript, tags: Mapping[int, str]) -> Spoken | None:
    """Return the language that most tags of a transcript name, with their mean confidence; None without a tag.

    ``tags`` has the code of the language by token.
    """
    named: dict[str, list[float]] = {}
    for token, confidence in zip(transcript.tokens, transcript.token_confidence, strict=True):
        if token in tags:
            named.setdefault(tags[token], []).append(confidence)
    if not named:
        return None
    language = max(named, key=lambda code: len(named[code]))  # of equals the first
    return Spoken(language, sum(named[language]) / len(named[language]))


def language_of_parts(parts: Sequence[Part]) -> Spoken | None:
    """Return the language of a recording, that of most of its seconds, with the mean probability of its parts."""
    seconds: dict[str, float] = {}
    sure: dict[str, float] = {}
    for part in parts:
        if part.spoken:
            language, length = part.spoken.language, part.end - part.start
            seconds[language] = seconds.get(language, 0.0) + length
            sure[language] = sure.get(language, 0.0) + length * part.spoken.probability
    if not seconds:
        return None
    language = max(seconds, key=seconds.__getitem__)
    return Spoken(language, sure[language] / seconds[language] if seconds[language] else 0.0)
