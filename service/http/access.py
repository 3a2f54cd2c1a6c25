"""API keys: who may ask. The service knows only their SHA-256 digests; `steno key` makes them."""

import hashlib
import hmac
import re
from collections.abc import Iterable

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
    """

    def __init__(self, entries: Iterable[str]) -> None:
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
