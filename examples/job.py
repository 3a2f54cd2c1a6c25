"""Transcribe a long recording as a job, without a connection that stays open: job.py RECORDING.

It uploads the recording, and fetches the transcript when it is there. A service with a public address would use a
webhook instead of polling: the fields `webhook` and `webhook_secret` (docs/api.md). OPENAI_BASE_URL is Steno's address;
OPENAI_API_KEY is the key, if the operator has set any. Needs httpx, which OpenAI's client depends on.
"""

import os
import sys
import time
from pathlib import Path

import httpx

if len(sys.argv) != 2:
    sys.exit("usage: python job.py RECORDING")
recording = Path(sys.argv[1])
url = os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1").rstrip("/") + "/audio/jobs"
key = os.environ.get("OPENAI_API_KEY", "none")


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer, unless it is an error: then the server says what is wrong, and the program ends."""
    if answer.is_error:
        sys.exit(f"{answer.status_code} {answer.text}")
    return answer


with httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=60) as client:
    with recording.open("rb") as file:
        job = checked(client.post(url, files={"file": file}, data={"response_format": "text"})).json()
    print(job["id"], job["status"])
    while job["status"] in ("queued", "in_progress"):
        time.sleep(1)
        job = checked(client.get(f"{url}/{job['id']}")).json()
    if job["status"] != "completed":
        sys.exit(f"{job['status']}: {job['error']}")
    print(checked(client.get(f"{url}/{job['id']}/result")).text, end="")
    checked(client.delete(f"{url}/{job['id']}"))
