"""Asks a server through litellm and prints what it gave, as JSON: litellm_client.py URL RECORDING."""

import json
import os
import sys
from pathlib import Path

import litellm

URL, RECORDING = sys.argv[1], Path(sys.argv[2])


def ask(**options: object) -> dict:
    asked = {
        "model": "openai/whisper-1",
        "file": RECORDING.open("rb"),
        "api_base": URL,
        "api_key": os.environ["OPENAI_API_KEY"],
        "max_retries": 1,
    }
    try:
        return json.loads(litellm.transcription(**asked | options).model_dump_json())
    except Exception as error:
        return {"kind": type(error).__name__, "status": getattr(error, "status_code", None), "message": str(error)}


def stream() -> list[dict]:
    answer = litellm.transcription(
        model="openai/whisper-1",
        file=RECORDING.open("rb"),
        api_base=URL,
        api_key=os.environ["OPENAI_API_KEY"],
        stream=True,
    )
    return [json.loads(event.model_dump_json()) for event in answer]


results = {
    "plain": ask(),
    "options": ask(
        language="en",
        prompt="Names: Ada.",
        temperature=0,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    ),
    "srt": ask(response_format="srt"),
    "not_audio": ask(file=("speech.wav", b"nothing that sounds")),
    "no_model": ask(model="openai/gpt-5"),
    "wrong_language": ask(language="xx"),
    "wrong_key": ask(api_key="wrong"),
    "stream": stream(),
}
print(json.dumps(results))
