"""Who said what in a call whose sides are the channels of a recording: python call.py RECORDING [NAME ...].

It uses OpenAI's Python client (pip install openai) with Steno. OPENAI_BASE_URL is Steno's address; OPENAI_API_KEY is
the key, if the operator has set any. Names are those of the channels in order, such as: agent customer.
"""

import os
import sys
from pathlib import Path

from openai import OpenAI

if len(sys.argv) < 2:
    sys.exit("usage: python call.py RECORDING [NAME ...]")
client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
recording, names = Path(sys.argv[1]), sys.argv[2:]

call = client.audio.transcriptions.create(
    model="whisper-1",
    file=recording,
    response_format="verbose_json",
    extra_body={"multichannel": True},  # an extension of Steno, as are the channels below
)
for segment in call.segments or []:
    channel = segment.to_dict()["channel"]  # counted from 1
    name = names[channel - 1] if channel <= len(names) else f"channel {channel}"
    print(f"{segment.start:7.2f} {name}: {segment.text}")
