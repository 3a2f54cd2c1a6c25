"""The pages at / and /docs and their parts. They are made once, at start-up, and need no key: they hold no secret."""

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing is loaded from elsewhere and nothing inline runs; the recording itself is played from memory (blob:).
_POLICY = (
    "default-src 'self'; media-src blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class _Page:
    """One file, answered from memory; a browser that has it already is told so (RFC 9110, 13.1.2)."""

    def __init__(self, body: bytes, media_type: str) -> None:
        self._body = body
        self._media_type = media_type
        self._etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        self._headers = {
            "cache-control": "no-cache",  # kept, but asked about: after an update nobody sees half of the old page
            "content-security-policy": _POLICY,
            "etag": self._etag,
            "permissions-policy": "microphone=(self)",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }

    async def __call__(self, request: Request) -> Response:
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if known & {self._etag, "*"}:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers, media_type=self._media_type)


def page_router(reference: str) -> APIRouter:
    """Return the routes `/`, `/web/NAME` for each part of a page, and `/docs` for the reference, an HTML page."""
    router = APIRouter(include_in_schema=False)
    pages = {"/docs": _Page(reference.encode(), _MEDIA_TYPES["html"])}
    for file in (files("service") / "web").iterdir():
        media_type = _MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:  # an editor's leftovers are no part of the page
            path = "/" if file.name == "index.html" else f"/web/{file.name}"
            pages[path] = _Page(file.read_bytes(), media_type)
    for path, page in pages.items():
        router.add_api_route(path, page, methods=["GET"], response_model=None)
    return router
