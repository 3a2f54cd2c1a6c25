"""Gate 1 before the framework: a request that is refused costs no more than its head.

Under ten times the load that a service can take, nine of ten requests are refused, and what they cost is missing where
the others are answered. Routing and dependencies are the larger half of what a refusal takes (docs/performance.md), and
a refusal needs neither.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.dispatch.admission import Admission
from service.dispatch.errors import RefusedError
from service.http.access import Access
from service.http.errors import RequestError, error_response
from service.http.telemetry import note_error
from service.http.upload import announced_bytes

_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


class FirstGate:
    """ASGI middleware, inside of telemetry: answers uploads for which there is no room; all else goes on.

    It holds no place: the route enters the gate, and may be refused there all the same.

    Args:
        app: what takes requests that are not refused.
        admission: decides.
        access: the keys; who has none, or has all its places taken, is told that instead.
        max_upload_bytes: what a body may have.
    """

    def __init__(self, app: ASGIApp, admission: Admission, access: Access, max_upload_bytes: int) -> None:
        self._app = app
        self._admission = admission
        self._access = access
        self._max_upload_bytes = max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in _PATHS:
            try:
                self._check(scope)
            except (RequestError, RefusedError) as error:
                response = error_response(error)
                note_error(scope["state"]["record"], response)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        try:
            self._admission.check(announced_bytes(headers, self._max_upload_bytes))
        except (RequestError, RefusedError):
            record = scope["state"]["record"]
            record.caller = self._access.authorize(headers)
            record.allowance = self._access.allowance(record.caller)
            with record.allowance.enter(self._admission.retry_after):
                raise
