"""API keys: who may ask, and how much. The service knows only their digests; `steno key` makes them."""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers

from service.http.allowance import Allowance, KeyLimits
from service.http.errors import RequestError

_BEARER = re.compile(r"Bearer +(\S+)", re.IGNORECASE)
_ENTRY = re.compile(r"([A-Za-z0-9_-]+):([0-9a-f]{64})")


def digest(key: str) -> str:
    """Return what the service keeps of a key: SHA-256 in hexadecimal. Keys are random, so no salt is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the operator wrote it down.

    Attributes:
        name: whose it is.
        digest: of the key, as `digest` makes it.
        limits: of all keys of this name; None for those of the service.
    """

    name: str
    digest: str
    limits: KeyLimits | None = None

    @classmethod
    def parse(cls, entry: str, limits: KeyLimits | None = None) -> "Key":
        """Read `name:sha256`.

        Raises:
            ValueError: if it is not that. The entry stays unsaid: it may be a key in the wrong place.
        """
        found = _ENTRY.fullmatch(entry)
        if not found:
            raise ValueError("is not name:sha256 (`steno key` makes one)")
        return cls(found[1], found[2], limits)


class Access:
    """The keys that open the API.

    Args:
        keys: of the start.
        limits: of names that have none of their own; counted for each name.
        is_open: whether everybody may ask, without a key.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        limits: KeyLimits = KeyLimits(),  # noqa: B008  # it is frozen
        *,
        is_open: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._is_open = is_open
        self._clock = clock
        self._unlimited = Allowance(KeyLimits(), clock)
        self._secret = secrets.token_bytes(32)
        self._names: dict[bytes, str] = {}
        self._allowances: dict[str, Allowance] = {}
        self.replace(keys)

    @property
    def names(self) -> list[str]:
        """Whose keys open it."""
        return list(self._allowances)

    def replace(self, keys: Iterable[Key]) -> None:
        """Take these keys from now on, in place of those before; a name whose limits stay keeps what it has used.

        Raises:
            ValueError: if two keys of a name have different limits; those before stay.
        """
        names: dict[bytes, str] = {}
        limits: dict[str, KeyLimits | None] = {}
        for key in keys:
            if limits.setdefault(key.name, key.limits) != key.limits:
                raise ValueError(f"two keys of {key.name!r} have different limits, which are counted by name")
            names[self._tag(key.digest)] = key.name
        self._names = names
        self._allowances = {name: self._allowance(name, own or self._limits) for name, own in limits.items()}

    def authorize(self, headers: Headers) -> str | None:
        """Return the name of the caller's key, None where the API is open.

        Raises:
            RequestError: if a key is needed, and none or a wrong one is given.
        """
        if self._is_open:
            return None
        bearer = _BEARER.fullmatch(headers.get("authorization", ""))
        name = self._names.get(self._tag(digest(bearer[1]))) if bearer else None
        if name is None:
            fault = "is not known" if bearer else "is missing (Authorization: Bearer KEY)"
            raise RequestError(f"The API key {fault}.", code="invalid_api_key", status=401)
        return name

    def allowance(self, caller: str | None) -> Allowance:
        """Return what is left to a caller by its name; without one, and without its key by now, there are no limits."""
        return self._allowances.get(caller or "", self._unlimited)

    def _tag(self, known: str) -> bytes:
        """Return what a digest is looked up by.

        How long a lookup takes depends on the tags, and those on a secret of this process: it tells nothing about the
        keys, and takes no longer with thousands of them.
        """
        return hmac.digest(self._secret, known.encode(), "sha256")

    def _allowance(self, name: str, limits: KeyLimits) -> Allowance:
        before = self._allowances.get(name)
        return before if before and before.limits == limits else Allowance(limits, self._clock)
