"""Transcribe a recording with OpenAI's Python client (pip install openai): python transcribe.py RECORDING.

OPENAI_BASE_URL is Steno's address; OPENAI_API_KEY is the key, if the operator has set any.
"""

import os
import sys
from pathlib import Path

from openai import APIStatusError, OpenAI

MODEL = "whisper-1"  # an alias of the default model; GET /v1/models lists the ids

if len(sys.argv) != 2:
    sys.exit("usage: python transcribe.py RECORDING")
recording = Path(sys.argv[1])
client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)

try:
    transcription = client.audio.transcriptions.create(model=MODEL, file=recording)
except APIStatusError as error:  # overload (503) and a key's own limit (429) have been tried again by then
    sys.exit(f"{error.status_code} {error.code}: {error.message}")
print(transcription.text)

verbose = client.audio.transcriptions.create(
    model=MODEL, file=recording, response_format="verbose_json", timestamp_granularities=["word", "segment"]
)
for segment in verbose.segments or []:
    print(f"segment {segment.start:.2f} to {segment.end:.2f} s: {segment.text}")
for word in verbose.words or []:
    confidence = word.to_dict()["confidence"]  # an extension of Steno: the lowest probability of the word's tokens
    print(f"word {word.start:.2f} to {word.end:.2f} s: {word.word} ({confidence:.2f})")

sure = client.audio.transcriptions.create(model=MODEL, file=recording, include=["logprobs"])
print("least likely token:", min(sure.logprobs or [], key=lambda entry: entry.logprob or 0.0, default=None))

for event in client.audio.transcriptions.create(model=MODEL, file=recording, stream=True):
    if event.type == "transcript.text.delta":
        print(event.delta, end="", flush=True)
print()

print(client.audio.transcriptions.create(model=MODEL, file=recording, response_format="srt"))
