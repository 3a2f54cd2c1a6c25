"""API keys: who may ask, and how much at once. The service knows only their digests; `steno key` makes them."""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers

from service.http.errors import RequestError

_BEARER = re.compile(r"Bearer +(\S+)", re.IGNORECASE)


def digest(key: str) -> str:
    """Return what the service keeps of a key: SHA-256 in hexadecimal. Keys are random, so no salt is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


class Access:
    """The keys that open the API; with none, it is open to all.

    Args:
        entries: `name:digest` of each key.
        max_requests: Transcriptions that may be under way at once for each name; None leaves them uncounted.
    """

    def __init__(self, entries: Iterable[str], max_requests: int | None = None) -> None:
        self._max_requests = max_requests
        self._under_way: Counter[str] = Counter()
        self._names = {known: name for name, _, known in (entry.rpartition(":") for entry in entries)}

    def authorize(self, headers: Headers) -> str | None:
        """Return the name of the caller's key, None where the API is open.

        Raises:
            RequestError: If a key is needed, and none or a wrong one is given.
        """
        if not self._names:
            return None
        bearer = _BEARER.fullmatch(headers.get("authorization", ""))
        given = digest(bearer[1]) if bearer else ""
        # All are compared, each in constant time: how long it takes tells nothing about the keys.
        matching = [name for known, name in self._names.items() if hmac.compare_digest(known, given)]
        if not matching:
            fault = "is not known" if bearer else "is missing (Authorization: Bearer KEY)"
            raise RequestError(f"The API key {fault}.", code="invalid_api_key", status=401)
        return matching[0]

    @contextmanager
    def enter(self, caller: str | None, retry_after: int) -> Iterator[None]:
        """Hold one of the places of a caller.

        Args:
            caller: Name of its key, None where the API is open.
            retry_after: Seconds that a refused caller is told to wait.

        Raises:
            RequestError: If all its places are taken.
        """
        if caller is None or self._max_requests is None:
            yield
            return
        if self._under_way[caller] >= self._max_requests:
            message = f"This key has {self._max_requests} requests under way, which is all it may have at once."
            raise RequestError(message, code="rate_limit_exceeded", status=429, retry_after=retry_after)
        self._under_way[caller] += 1
        try:
            yield
        finally:
            self._under_way[caller] -= 1
