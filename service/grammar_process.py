"""The process that writes numbers as people do, by NeMo's grammars: `python -m service.grammar_process CACHE`.

A process of its own, because grammars take memory, minutes to build, and the interpreter while they are applied. Each
line of its input is a JSON object, `{"language", "phrases"}`; each line of its output the list of what is written. It
ends with its input.
"""

import json
import os
import signal
import sys
from typing import Protocol


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the front, which closes the input
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what libraries print is no answer
        writers: dict[str, _Writer] = {}
        for line in sys.stdin:
            asked = json.loads(line)
            language = asked["language"]
            if language not in writers:
                writers[language] = _writer(language, sys.argv[1])
            answers.write(json.dumps([_written(writers[language], phrase) for phrase in asked["phrases"]]) + "\n")
            answers.flush()


class _Writer(Protocol):
    def inverse_normalize(self, text: str, *, verbose: bool) -> str: ...


def _writer(language: str, cache: str) -> _Writer:
    from nemo_text_processing.inverse_text_normalization.inverse_normalize import InverseNormalizer

    os.makedirs(cache, exist_ok=True)  # noqa: PTH103  # it is a path already
    writer: _Writer = InverseNormalizer(lang=language, cache_dir=cache)
    return writer


def _written(writer: _Writer, phrase: str) -> str:
    try:
        return str(writer.inverse_normalize(phrase, verbose=False))
    except Exception:  # noqa: BLE001  # a grammar that has no way for a phrase leaves it as it is
        return phrase


if __name__ == "__main__":
    main()
