"""Answers of the stub engine, byte for byte as tests/data/answers keeps them; STENO_WRITE_ANSWERS=1 writes them anew.

Of long answers it keeps the digest.
"""

import hashlib
import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.service.serving import form, serving, tone, wav

FOLDER = Path(__file__).parents[2] / "data" / "answers"
FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
# English, German and French to the stub, by the number of samples modulo 3.
SHORT, PARTS = 48_001, (64_000, 48_000, 63_998)
KEPT = 500  # bytes of an answer
SIZE = {"subtitle_characters": "20", "subtitle_lines": "1", "subtitle_seconds": "2"}
BOTH = {"timestamp_granularities[]": ["word", "segment"]}
SERVICES = {
    "plain": {"model": "stub.nemo"},
    "untimed": {"model": "untimed.nemo"},
    "polyglot": {"model": "polyglot.nemo"},
    "prompted": {"model": "prompted.nemo"},
    "identified": {"model": "prompted.nemo", "language_identifier": "finder.nemo"},
}


def recordings() -> dict[str, bytes]:
    """One and two channels, short and in three parts; the second channel of one is silent."""
    made = {}
    for name, samples in (("short", SHORT), ("long", sum(PARTS))):
        one = tone(samples)
        made[name] = wav(one, subtype="PCM_16")
        made[f"{name} of two"] = wav(np.stack([one, tone(samples, 0.3)], axis=1), subtype="PCM_16")
    made["half silent"] = wav(np.stack([tone(SHORT), np.zeros(SHORT, np.float32)], axis=1), subtype="PCM_16")
    made["silent"] = wav(np.zeros(SHORT, np.float32), subtype="PCM_16")
    return made


def asked(service: str):
    """The fields of each request, besides the recording."""
    for response_format, stream in itertools.product(FORMATS, ("false", "true")):
        fields = {"response_format": response_format, "stream": stream}
        yield fields
        if response_format in ("srt", "vtt"):
            yield fields | SIZE
        if response_format == "verbose_json":
            yield fields | BOTH
        if response_format == "json":
            yield fields | {"language": "auto"}
            if service in ("plain", "polyglot"):
                yield fields | {"include[]": "logprobs"}
        if service in ("prompted", "identified") and response_format in ("json", "verbose_json"):
            yield fields | {"language": "de", "target_language": "en"}


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
def test_answers_are_as_they_were(service, cut_as):
    cut_as(*PARTS)
    found = {}
    with serving(**SERVICES[service], max_utterance_seconds=5.0) as served:
        for (name, file), fields in itertools.product(recordings().items(), asked(service)):
            if service == "untimed" and "of two" in name:
                continue
            multichannel = "true" if name not in ("short", "long") else "false"
            answer = served.post(**form(file, **fields, multichannel=multichannel))
            key = f"{name} {' '.join(f'{field}={value}' for field, value in fields.items())}"
            body = re.sub(r'"no_speech_prob":[\d.e-]+', '"no_speech_prob":0', answer.text)
            # Its last digits depend on the processor.
            body = re.sub(r'(?<="language_probability":)[\d.e-]+', lambda found: f"{float(found[0]):.3f}", body)
            if len(body) > KEPT:
                body = f"{len(body)} {hashlib.sha256(body.encode()).hexdigest()}"
            found[key] = [answer.status_code, answer.headers["content-type"], body]
    path = FOLDER / f"{service}.json"
    if os.environ.get("STENO_WRITE_ANSWERS"):
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in found.items()
        )
        path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")

    kept = json.loads(path.read_text(encoding="utf-8"))
    assert {key: found[key] for key in kept if found[key] != kept[key]} == {}
    assert found.keys() == kept.keys()
