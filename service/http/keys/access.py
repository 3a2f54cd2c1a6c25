"""API keys: who may use the API, and how much. The service has only digests of keys; `steno key` makes both."""

import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.keys.allowance import Allowance
from service.keys import Key, KeyLimits, digest

_BEARER = re.compile(r"Bearer +(\S+)", re.IGNORECASE)


class Access:
    """The keys that open the API; a name without limits of its own has these.

    Attributes:
        is_open: whether the API may be used without a key; it stays closed when the last key is withdrawn.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        limits: KeyLimits = KeyLimits(),  # noqa: B008  # it is frozen
        *,
        is_open: bool,
    ) -> None:
        self._limits = limits
        self.is_open = is_open
        self._unlimited = Allowance(KeyLimits())
        self._secret = secrets.token_bytes(32)
        self._names: dict[bytes, str] = {}
        self._allowances: dict[str, Allowance] = {}
        self.replace(keys)

    @property
    def names(self) -> list[str]:
        """Names of the owners of keys."""
        return list(self._allowances)

    def replace(self, keys: Iterable[Key]) -> None:
        """Replace all keys; a name whose limits do not change keeps its usage.

        Raises:
            ValueError: if two keys of a name have different limits; then nothing is replaced.
        """
        names: dict[bytes, str] = {}
        limits: dict[str, KeyLimits] = {}
        for key in keys:
            own = key.limits or self._limits
            if limits.setdefault(key.name, own) != own:
                raise ValueError(f"two keys of {key.name!r} have different limits, which are counted by name")
            names[self._tag(key.digest)] = key.name
        self._names = names
        self._allowances = {name: self._allowance(name, own) for name, own in limits.items()}

    def authorize(self, headers: Headers) -> str | None:
        """Return the name of the caller's key, or None if the API is open.

        Raises:
            RequestError: if a key is needed, and it is missing or wrong.
        """
        if self.is_open:
            return None
        bearer = _BEARER.fullmatch(headers.get("authorization", ""))
        name = self._names.get(self._tag(digest(bearer[1]))) if bearer else None
        if name is None:
            fault = "is not known" if bearer else "is missing (Authorization: Bearer KEY)"
            raise RequestError(f"The API key {fault}.", code=ErrorCode.INVALID_API_KEY)
        return name

    def allowance(self, caller: str | None) -> Allowance:
        """Return the allowance of a caller by name; without a name, or if its key was removed, there are no limits."""
        return self._allowances.get(caller or "", self._unlimited)

    def _tag(self, known: str) -> bytes:
        """Return the tag that a digest is looked up by: a keyed hash with a secret of this process.

        The time of a lookup depends on the tags only, so it reveals nothing about keys, however many there are.
        """
        return hmac.digest(self._secret, known.encode(), "sha256")

    def _allowance(self, name: str, limits: KeyLimits) -> Allowance:
        before = self._allowances.get(name)
        return before if before and before.limits == limits else Allowance(limits, name=name)


class _Key(HTTPBearer):
    """The check of a key, as a dependency of routes.

    It derives from FastAPI's check, so that the API's description names the keys. The errors of that check have another
    shape than all others, so it is not called.
    """

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        """Check the API key.

        Raises:
            RequestError: if one is needed, and it is missing or wrong.
        """
        access: Access = request.app.state.front.access
        request.state.record.caller = access.authorize(request.headers)


_SCHEME = "Key"
KEY = Depends(_Key(scheme_name=_SCHEME, description="A key, if the operator has set any."))
# What the API's description says of a route that checks the key itself, without the cost of a dependency.
NEEDS_KEY: dict[str, Any] = {"security": [{_SCHEME: []}]}
