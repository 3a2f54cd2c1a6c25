"""Checks of keys, as dependencies of routes.

They derive from FastAPI's check, so that the API's description names the keys. The errors of that check have another
shape than all others, so it is not called.
"""

from typing import TYPE_CHECKING, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.transcription import schemas

if TYPE_CHECKING:
    from service.http.front import Backend, Front


class _Key(HTTPBearer):
    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        """Check the API key.

        Raises:
            RequestError: if one is needed, and it is missing or wrong.
        """
        front: Front = request.app.state.front
        request.state.record.caller = front.access.authorize(request.headers)


class _AdminKey(HTTPBearer):
    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        """Check the admin key.

        Raises:
            RequestError: if it is missing or wrong, or the operator has set none.
        """
        front: Front = request.app.state.front
        backend: Backend = request.app.state.backend
        if not front.settings.admin_keys:
            raise RequestError("No admin key is set, so these routes are closed.", code=ErrorCode.ADMIN_DISABLED)
        request.state.record.caller = backend.admin_access.authorize(request.headers)


KEY = Depends(_Key(scheme_name="Key", description="A key, if the operator has set any."))
ADMIN_KEY = Depends(_AdminKey(scheme_name="AdminKey", description="An admin key."))
NOT_AUTHORIZED: dict[int | str, dict[str, Any]] = {
    401: {"model": schemas.ErrorBody, "description": "A key is needed, and none or a wrong one was given."}
}
