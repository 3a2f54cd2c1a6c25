"""`include[]=logprobs`: the log-probability of each token, in the shape of OpenAI's API."""

import math
from collections.abc import Sequence
from typing import Any

from transcripts.transcript import Transcript

_LEAST = 1.1754944e-38


def token_logprobs(
    transcript: Transcript, token_bytes: Sequence[bytes], span: tuple[int, int] | None = None, *, begins: bool = True
) -> list[dict[str, Any]]:
    """Describe the tokens of a transcript; the bytes of all of them, joined, are its text.

    Part of a character cannot be a string: `token` shows it as U+FFFD, and `bytes` is exact. ``token_bytes`` is the
    text of each token of the vocabulary; ``span`` is a slice of the transcript's, which loses its space if it begins.
    """
    begin, end = span or (0, len(transcript.tokens))
    spare = _spare_spaces(transcript, token_bytes) if begins and begin == 0 else 0
    entries = []
    for index in range(begin, end):
        text = token_bytes[transcript.tokens[index]]
        spaces = min(spare, _leading_spaces(text))
        text, spare = text[spaces:], spare - spaces
        probability = logprob(transcript.token_confidence[index])
        entries.append({"token": text.decode(errors="replace"), "logprob": probability, "bytes": list(text)})
    return entries


def logprob(probability: float) -> float:
    """Return the natural logarithm, which is never below that of the smallest normal float32."""
    return math.log(max(probability, _LEAST))


def _spare_spaces(transcript: Transcript, token_bytes: Sequence[bytes]) -> int:
    """Return the number of spaces before the first word that tokens have and the text has not."""
    joined = b"".join(token_bytes[token] for token in transcript.tokens)
    return max(0, _leading_spaces(joined) - _leading_spaces(transcript.text.encode()))


def _leading_spaces(text: bytes) -> int:
    return len(text) - len(text.lstrip(b" "))
