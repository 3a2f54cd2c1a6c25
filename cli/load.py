"""Clients that put load on a service with OpenAI's audio API, and a record of its answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_PATH = "audio/transcriptions"
_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Upload:
    """A request with a recording, and its seconds: the form is encoded once for all its uploads."""

    name: str
    content: bytes
    headers: Mapping[str, str]
    seconds: float

    @classmethod
    def of(cls, name: str, recording: bytes, seconds: float, model: str | None, key: str | None) -> Upload:
        """Encode the form."""
        form = httpx.Request(
            "POST", "http://any", files={"file": (name, recording)}, data={} if model is None else {"model": model}
        )
        headers = {"content-type": form.headers["content-type"]}
        return cls(name, form.read(), headers | ({} if key is None else {"authorization": f"Bearer {key}"}), seconds)


@dataclass(slots=True)
class Answers:
    """A record of the service's answers.

    Attributes:
        latencies: seconds to each transcript, from when its request was due.
        good_audio_seconds: audio that was transcribed within the objective.
        errors: how many, by status and code, or by what broke the connection.
        mismatches: transcripts that were not those of the recording alone.
    """

    latencies: list[float] = field(default_factory=list)
    audio_seconds: float = 0.0
    good_audio_seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    mismatches: int = 0


class Load:
    """Uploads recordings, and records the answers.

    Args:
        client: for the service; its base URL ends in /v1/.
        objective: seconds within which an answer is good.
        expected: the transcript of each recording alone, by name; a recording without one is not compared.
        done: called after every answer.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        objective: float,
        expected: Mapping[str, str],
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self.answers = Answers()
        self._client = client
        self._objective = objective
        self._expected = expected
        self._done = done

    async def ask(self, upload: Upload, due: float | None = None) -> float:
        """Upload a recording, and return the seconds to wait before the next.

        Latency counts from ``due``, a time of the monotonic clock (None: now).
        """
        began = time.monotonic() if due is None else due
        answers = self.answers
        try:
            answer = await self._client.post(_PATH, content=upload.content, headers=dict(upload.headers))
        except httpx.RequestError as error:
            answers.errors[type(error).__name__] += 1
            return 1.0
        finally:
            self._done()
        text = _text(answer)
        if text is None:
            answers.errors[_problem(answer)] += 1
            return _seconds(answer.headers.get("retry-after"))
        took = time.monotonic() - began
        answers.latencies.append(took)
        answers.audio_seconds += upload.seconds
        answers.good_audio_seconds += upload.seconds if took <= self._objective else 0.0
        answers.mismatches += text != self._expected.get(upload.name, text)
        return 0.0


async def closed(load: Load, uploads: Sequence[Upload], clients: int, seconds: float, seed: int) -> None:
    """Run ``clients`` clients for ``seconds``. Each uploads, waits for its answer and a Retry-After, and repeats."""
    end = time.monotonic() + seconds

    async def client(chosen: random.Random) -> None:
        while time.monotonic() < end:
            wait = await load.ask(chosen.choice(uploads))
            await asyncio.sleep(min(wait, max(0.0, end - time.monotonic())))

    await asyncio.gather(*(client(random.Random(f"{seed}/{number}")) for number in range(clients)))  # noqa: S311


async def opened(load: Load, uploads: Sequence[Upload], arrivals: Iterable[float], seed: int) -> None:
    """Upload at the given times, in seconds from now, whether earlier requests were answered or not."""
    began, chosen = time.monotonic(), random.Random(seed)  # noqa: S311
    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            await asyncio.sleep(max(0.0, began + arrival - time.monotonic()))
            group.create_task(load.ask(chosen.choice(uploads), began + arrival))


def poisson(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield times of arrival that are independent of each other: ``rate`` a second on average."""
    chosen, now = random.Random(seed), 0.0  # noqa: S311
    while (now := now + chosen.expovariate(rate)) < seconds:
        yield now


async def alone(client: httpx.AsyncClient, uploads: Iterable[Upload]) -> dict[str, str]:
    """Return the transcript of each recording by name, uploaded one after the other; none is an httpx.HTTPError."""
    texts = {}
    for upload in uploads:
        answer = await client.post(_PATH, content=upload.content, headers=dict(upload.headers))
        text = _text(answer)
        if text is None:
            raise httpx.HTTPError(f"{upload.name}: {_problem(answer)}")
        texts[upload.name] = text
    return texts


def connect(url: str) -> httpx.AsyncClient:
    """Return a client for the API at an address, with or without /v1 at its end."""
    root = url.rstrip("/")
    base = root if root.endswith("/v1") else f"{root}/v1"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=base + "/", timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False)


def _text(answer: httpx.Response) -> str | None:
    """Return the transcript of an answer; None if it is an error, or comes from another kind of service."""
    try:
        text = answer.json()["text"] if answer.is_success else None
    except (ValueError, KeyError, TypeError):
        return None
    return text if isinstance(text, str) else None


def _problem(answer: httpx.Response) -> str:
    """Return the status and the error code of an answer without a transcript."""
    if answer.is_success:
        return f"{answer.status_code} without a transcript"
    try:
        return f"{answer.status_code} {answer.json()['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 1))
    except ValueError:
        return 1.0
