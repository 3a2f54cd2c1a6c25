"""The child process that writes numbers in digits by NeMo's grammars: `python -m service.grammar_process CACHE`.

It is a process of its own because grammars take memory, take minutes to build, and hold the interpreter lock. Each line
of its input is a JSON object, `{"language", "phrases"}`; each line of its output is the list of rewritten phrases. It
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
        os.dup2(2, 1)  # output of libraries must not mix with answers
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

    os.makedirs(cache, exist_ok=True)  # noqa: PTH103  # a plain string path
    writer: _Writer = InverseNormalizer(lang=language, cache_dir=cache)
    return writer


def _written(writer: _Writer, phrase: str) -> str:
    try:
        return str(writer.inverse_normalize(phrase, verbose=False))
    except Exception:  # noqa: BLE001  # a grammar that cannot parse a phrase leaves it unchanged
        return phrase


if __name__ == "__main__":
    main()
