"""The pages at / and /docs and their files, which are read once, at the start. They hold no secret and need no key.

The page at /docs is Swagger UI over /openapi.json. Its script and style come with the package `fastapi-swagger`;
FastAPI's own page would load them from another host.
"""

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
# Nothing is loaded from another origin, and no inline script runs. The page plays recordings from memory (blob:), and
# Swagger UI's style sheet has inline icons (data:).
_POLICY = (
    "default-src 'self'; media-src blob:; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_SWAGGER_UI = ("swagger-ui-bundle.js", "swagger-ui.css")
# Pages have their own paths; each other file is /web/NAME.
_PAGES = {"index.html": "/", "docs.html": "/docs"}


class _File:
    """A file served from memory; a browser that has it gets 304 (RFC 9110, 13.1.2)."""

    def __init__(self, body: bytes, media_type: str) -> None:
        self._body = body
        self._media_type = media_type
        self._etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        self._headers = {
            "cache-control": "no-cache",  # validated, so that files of two versions do not mix
            "content-security-policy": _POLICY,
            "etag": self._etag,
            "permissions-policy": "microphone=(self)",
            "referrer-policy": "no-referrer",
        }

    async def __call__(self, request: Request) -> Response:
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if known & {self._etag, "*"}:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers, media_type=self._media_type)


def page_router() -> APIRouter:
    """Return the routes of the pages, `/` and `/docs`, and `/web/NAME` for each of their parts."""
    router = APIRouter(include_in_schema=False)
    ours = (files("service") / "web").iterdir()
    theirs = (files("fastapi_swagger") / "resources" / name for name in _SWAGGER_UI)
    for file in (*ours, *theirs):
        media_type = _MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:  # other files, such as an editor's, are not served
            served = _File(file.read_bytes(), media_type)
            path = _PAGES.get(file.name, f"/web/{file.name}")
            router.add_api_route(path, served, methods=["GET"], response_model=None)
    return router
