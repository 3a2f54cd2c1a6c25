"""The clients of a soak: each kind asks in its own way, knows the right answer, and reports the one that it got."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import httpx

from tests.soak.account import BROKEN, Account
from tests.soak.recordings import Recorded

_PATH = "/v1/audio/transcriptions"
_PATIENCE_SECONDS = 400.0
_SECOND = "second"
_SLOW_PIECES = 20
_SLOW_SECONDS = 0.1


@dataclass
class Clients:
    """State that all kinds of clients share."""

    url: str  # of the service
    keys: Sequence[str]  # that open it
    recordings: Sequence[Recorded]  # what they upload
    expected: Mapping[str, str]  # the transcript of each alone, by name
    account: Account  # gets their answers

    async def run(self, seed: str, until: float) -> None:
        """Be one client after the other, as the seed draws them, until a time."""
        chance = random.Random(seed)
        kinds: dict[Callable[[httpx.AsyncClient, random.Random], Awaitable[None]], float] = {
            partial(self._ask, "json"): 8,
            partial(self._ask, "verbose_json"): 3,
            partial(self._ask, "text"): 2,
            partial(self._ask, "stream"): 3,
            self.slow: 2,
            self.leaves: 4,
            self.bad_audio: 2,
            self.bad_key: 1,
        }
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self.url, timeout=_PATIENCE_SECONDS, limits=limits, trust_env=False
        ) as client:
            while time.monotonic() < until:
                (kind,) = chance.choices(list(kinds), list(kinds.values()))
                await kind(client, chance)

    async def slow(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """Send the body bit by bit, without saying how long it is."""
        recording = chance.choice(self.recordings)
        form = self._form(client, recording, {})
        body = form.read()

        async def pieces():
            step = len(body) // _SLOW_PIECES + 1
            for begin in range(0, len(body), step):
                yield body[begin : begin + step]
                await asyncio.sleep(_SLOW_SECONDS)

        headers = self._key(chance) | {"content-type": form.headers["content-type"]}
        request = client.build_request("POST", _PATH, content=pieces(), headers=headers)
        await self._send(client, request, "slow", recording, _text)

    async def leaves(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """Close the connection anywhere within the request, or some time after it."""
        recording = chance.choice(self.recordings)
        form = self._form(client, recording, {})
        form.headers.update(self._key(chance))
        lines = "".join(f"{name}: {value}\r\n" for name, value in form.headers.items())
        sent = f"POST {_PATH} HTTP/1.1\r\n{lines}\r\n".encode() + form.read()
        where = httpx.URL(self.url)
        try:
            _, writer = await asyncio.open_connection(where.host, where.port)
            writer.write(sent[: chance.randrange(1, len(sent) + 1)])
            await asyncio.sleep(chance.choice((0.0, 0.02, 0.2, 1.0)))
            writer.close()
        except OSError:
            pass
        self.account.outcomes["leaves", "left"] += 1

    async def bad_audio(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """Upload a file that is not audio."""
        junk = Recorded("junk.mp4", chance.choice((b"", b"\0\0\0 ftypM4A ", b"OggS")) + chance.randbytes(3000), 0.0)
        request = client.build_request("POST", _PATH, files=_file(junk), headers=self._key(chance))
        began = time.monotonic()
        answer, what = await self._answer(client, request)
        is_right = answer is not None and answer.status_code == 400
        self.account.note("bad audio", what, began, is_right=is_right, detail="" if answer is None else answer.text)

    async def bad_key(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """Come without a key that is known."""
        request = client.build_request(
            "POST", _PATH, files=_file(chance.choice(self.recordings)), headers={"authorization": "Bearer nobody"}
        )
        began = time.monotonic()
        answer, what = await self._answer(client, request)
        # It is refused before its body is sent: a client that sees its connection closed meanwhile may say so instead.
        self.account.note("bad key", what, began, is_right=answer is not None and answer.status_code == 401)

    async def second_model(self, until: float) -> None:
        """Ask a model that is loaded on demand, and leave it alone until it is unloaded, over and over."""
        recording = next(one for one in self.recordings if one.seconds == 3.5)
        expected: str | None = None
        async with httpx.AsyncClient(base_url=self.url, timeout=_PATIENCE_SECONDS, trust_env=False) as client:
            while time.monotonic() < until:
                began = time.monotonic()
                answer, what = await self._answer(client, self._second(client, recording))
                is_right = answer is not None and answer.status_code == 200
                if is_right and answer is not None:
                    expected = expected or answer.json()["text"]
                    is_right = answer.json()["text"] == expected
                    what = what if is_right else f"{what}, another text"
                detail = "" if answer is None else answer.text
                self.account.note("second model", what, began, is_right=is_right, detail=detail)
                await asyncio.sleep(3.0)  # longer than it stays without a request

    def _second(self, client: httpx.AsyncClient, recording: Recorded) -> httpx.Request:
        headers = {"authorization": f"Bearer {self.keys[0]}"}
        return client.build_request("POST", _PATH, files=_file(recording), data={"model": _SECOND}, headers=headers)

    async def _ask(self, kind: str, client: httpx.AsyncClient, chance: random.Random) -> None:
        fields, text = _ASKED[kind]
        recording = chance.choice(self.recordings)
        form = self._form(client, recording, fields)
        form.headers.update(self._key(chance))
        await self._send(client, form, kind, recording, text)

    async def _send(
        self,
        client: httpx.AsyncClient,
        request: httpx.Request,
        kind: str,
        recording: Recorded,
        text: Callable[[httpx.Response], str],
    ) -> None:
        began = time.monotonic()
        answer, what = await self._answer(client, request)
        is_right = answer is not None and answer.status_code == 200 and " " not in what
        detail = "" if answer is None else f"{recording.name}: {answer.text}"
        if is_right and answer is not None:
            heard = text(answer)
            if not (is_right := heard == self.expected[recording.name]):
                what, detail = "200, another text", f"{recording.name}: {heard!r}"
        self.account.note(kind, what, began, is_right=is_right, detail=detail)

    async def _answer(self, client: httpx.AsyncClient, request: httpx.Request) -> tuple[httpx.Response | None, str]:
        try:
            answer = await client.send(request)
        except httpx.TransportError as error:
            return None, BROKEN if not isinstance(error, httpx.ReadTimeout) else "no answer"
        code = _code(answer)
        return answer, f"{answer.status_code} {code}".strip()

    def _form(self, client: httpx.AsyncClient, recording: Recorded, fields: Mapping[str, str]) -> httpx.Request:
        return client.build_request("POST", _PATH, files=_file(recording), data={"model": "whisper-1", **fields})

    def _key(self, chance: random.Random) -> dict[str, str]:
        return {"authorization": f"Bearer {chance.choice(self.keys)}"}


def _file(recording: Recorded) -> dict[str, tuple[str, bytes]]:
    return {"file": (recording.name, recording.content)}


def _events(answer: httpx.Response) -> list[dict]:
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]


def _code(answer: httpx.Response) -> str:
    """The code of an error, also of one within a stream."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        return next((f"in the stream: {event['error']['code']}" for event in _events(answer) if "error" in event), "")
    if answer.is_success:
        return ""
    try:
        return str(answer.json()["error"]["code"])
    except ValueError:
        return f"not in our shape: {answer.text[:100]}"


def _streamed(answer: httpx.Response) -> str:
    *deltas, done = _events(answer)
    text = "".join(event["delta"] for event in deltas if event["type"] == "transcript.text.delta")
    return text if done.get("text") == text else f"deltas {text!r} and done {done!r}"


def _text(answer: httpx.Response) -> str:
    return str(answer.json()["text"])


# What clients ask for, and where its text is; an error within a stream counts as the answer.
_ASKED: dict[str, tuple[Mapping[str, str], Callable[[httpx.Response], str]]] = {
    "json": ({}, _text),
    "verbose_json": ({"response_format": "verbose_json", "timestamp_granularities[]": "word"}, _text),
    "text": ({"response_format": "text"}, lambda answer: answer.text.strip("\n")),
    "stream": ({"stream": "true"}, _streamed),
}
