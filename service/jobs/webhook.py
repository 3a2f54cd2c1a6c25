"""Writing and signing webhooks by Standard Webhooks, as OpenAI does, so that OpenAI's clients can verify them.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md: the signature is HMAC-SHA256
over `id.timestamp.body`. The id is the same in each attempt, so that a receiver can recognise repetitions.
"""

import base64
import hmac

import orjson

from service.jobs.job import Job

_PREFIX = "whsec_"
_LEAST_SECRET, _MOST_SECRET = 16, 512
# Seconds from a failed attempt to the next: eight more attempts, over some eight hours.
RETRY_SECONDS = (5, 30, 120, 600, 1800, 3600, 7200, 14400)


def check_secret(secret: str) -> str:
    """Return a valid secret unchanged: `whsec_` and base64, or any other text.

    Raises:
        ValueError: if it is not valid.
    """
    # The prefix is the same in all secrets, so it makes none harder to guess.
    if not _LEAST_SECRET <= len(secret.removeprefix(_PREFIX)) <= _MOST_SECRET:
        raise ValueError(f"a webhook's secret has {_LEAST_SECRET} to {_MOST_SECRET} characters, besides {_PREFIX}")
    try:
        _key(secret)
    except ValueError:
        form = f"base64 after {_PREFIX}" if secret.startswith(_PREFIX) else "text in UTF-8"
        raise ValueError(f"a webhook's secret is {form}") from None
    return secret


def body(job: Job) -> bytes:
    """Return the body for a finished job. It does not hold the transcript, which takes the API key to read."""
    event = {
        "id": event_id(job),
        "object": "event",
        "type": f"audio.job.{job.state}",
        "created_at": int(job.finished or job.created),
        "data": job.described(),
    }
    return orjson.dumps(event)


def event_id(job: Job) -> str:
    """Return the id of a job's only event."""
    return job.id.replace("job_", "evt_", 1)


def headers(job: Job, secret: str, content: bytes, now: float) -> dict[str, str]:
    """Return the headers of one attempt at this Unix time, by a secret that `check_secret` has found valid."""
    identity, timestamp = event_id(job), str(int(now))
    signed = b"%b.%b.%b" % (identity.encode(), timestamp.encode(), content)
    signature = base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()
    return {
        "content-type": "application/json",
        "user-agent": "Steno-Webhooks",
        "webhook-id": identity,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }


def _key(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    return secret.encode()
