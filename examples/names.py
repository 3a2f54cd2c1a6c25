"""Transcribe a recording in which names are said: python names.py RECORDING NAME ...

It uses OpenAI's Python client (pip install openai) with Steno. OPENAI_BASE_URL is Steno's address; OPENAI_API_KEY is
the key, if the operator has set any.
"""

import os
import sys
from pathlib import Path

from openai import OpenAI

if len(sys.argv) < 3:
    sys.exit("usage: python names.py RECORDING NAME ...")
client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
recording, names = Path(sys.argv[1]), sys.argv[2:]

transcription = client.audio.transcriptions.create(
    model="whisper-1",
    file=recording,
    extra_body={"phrases": names},  # an extension of Steno
)
print(transcription.text)
