"""A long recording in front of Steno, without a connection that lasts as long: job.py RECORDING.

The recording is uploaded, and its transcript fetched when it is there. A service behind a public address would rather
be told than ask: the fields `webhook` and `webhook_secret` name where and how (docs/api.md). OPENAI_BASE_URL says where
Steno is; OPENAI_API_KEY is the key, where its operator has set any. Needs httpx, which OpenAI's client brings along.
"""

import os
import sys
import time
from pathlib import Path

import httpx

recording = Path(sys.argv[1])
url = os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1").rstrip("/") + "/audio/jobs"
key = os.environ.get("OPENAI_API_KEY", "none")

with httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=60) as client:
    with recording.open("rb") as file:
        created = client.post(url, files={"file": file}, data={"response_format": "text"})
    if created.is_error:
        sys.exit(created.text)
    job = created.json()
    print(job["id"], job["status"])
    while job["status"] in ("queued", "in_progress"):
        time.sleep(1)
        job = client.get(f"{url}/{job['id']}").json()
    if job["status"] != "completed":
        sys.exit(f"{job['status']}: {job['error']}")
    print(client.get(f"{url}/{job['id']}/result").text, end="")
    client.delete(f"{url}/{job['id']}")
