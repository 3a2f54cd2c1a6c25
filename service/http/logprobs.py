"""`include[]=logprobs`: how sure the model was of each token, in the shape of OpenAI's API."""

import math
from collections.abc import Sequence
from typing import Any

from service.engine.protocol import Transcript


def token_logprobs(
    transcript: Transcript, spellings: Sequence[bytes], span: tuple[int, int] | None = None, *, begins: bool = True
) -> list[dict[str, Any]]:
    """Describe the tokens of a transcript; one after the other their bytes are its text.

    A byte that is only a part of a character cannot be a string: `token` shows it as U+FFFD, `bytes` is exact.

    Args:
        transcript: What was heard.
        spellings: What each token of the vocabulary writes.
        span: A slice of its tokens; None means all.
        begins: It is the beginning of a text, not a later part of one.
    """
    begin, end = span or (0, len(transcript.tokens))
    at_start = begins and begin == 0
    entries = []
    for place in range(begin, end):
        written = spellings[transcript.tokens[place]]
        if at_start:
            written = written.lstrip(b" ")  # a text does not begin with the space that begins its first word
            at_start = not written
        probability = transcript.token_confidence[place]
        entries.append(
            {
                "token": written.decode(errors="replace"),
                "logprob": math.log(probability) if probability > 0 else None,
                "bytes": list(written),
            }
        )
    return entries
