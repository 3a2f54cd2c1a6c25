"""Gate 1, as ASGI middleware, so that refusing a request costs as little as possible.

At ten times the load that a service can take, nine of ten requests are refused, and their cost takes capacity from the
others. Routing and dependencies would be half of a refusal's cost (docs/performance.md at 4f03a9e), and are not needed.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.dispatch.errors import RefusedError
from service.http.core import Core
from service.http.errors import RequestError, error_response
from service.http.keys.access import Access
from service.http.wire.upload import announced_bytes

PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


class FirstGate:
    """ASGI middleware behind `Telemetry`: refuses uploads that are too large or find no room.

    It only refuses. The route enters the gate, which may still refuse the request. If the keys refuse the request too,
    their error is the answer.
    """

    def __init__(self, app: ASGIApp, core: Core, access: Access, max_upload_bytes: int) -> None:
        self._app = app
        self._core = core
        self._access = access
        self._max_upload_bytes = max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in PATHS:
            try:
                await self._check(scope)
            except (RequestError, RefusedError) as error:
                response = error_response(error)
                scope["state"]["record"].error = response.code
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        try:
            self._core.gate.check(announced_bytes(headers, self._max_upload_bytes))
        except (RequestError, RefusedError):
            record = scope["state"]["record"]
            record.caller = self._access.authorize(headers)
            record.allowance = self._access.allowance(record.caller)
            async with self._core.use_key(record.allowance):
                raise
