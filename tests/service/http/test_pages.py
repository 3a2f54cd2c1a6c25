"""The page's files as they are sent; tests/service/test_web.py shows them in a browser."""

import re
from pathlib import Path

import pytest

from service.keys import digest
from tests.service.serving import serving

WEB = Path(__file__).parents[3] / "service" / "web"


@pytest.fixture(scope="module")
def client():
    """Of a service whose API needs a key."""
    with serving(api_keys=f"me:{digest('sesame')}", wait_ready=False) as service:
        yield service.client


@pytest.mark.parametrize("name", sorted(file.name for file in WEB.iterdir()))
def test_every_file_is_sent_as_it_is_without_a_key(client, name):
    answer = client.get({"index.html": "/", "docs.html": "/docs"}.get(name, f"/web/{name}"))

    assert answer.status_code == 200
    assert answer.content == (WEB / name).read_bytes()
    if name.endswith(".js"):  # the type that modules must have
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_page_forbids_the_browser_what_it_does_not_need(client):
    policy = client.get("/").headers["content-security-policy"]

    directives = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert directives["default-src"] == "'self'"
    assert directives["frame-ancestors"] == "'none'"
    assert "unsafe" not in policy
    assert not re.search(r"[*]|https?:", policy)


def test_swagger_ui_comes_from_this_service(client):
    page = client.get("/docs").text

    parts = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert {"web/swagger-ui-bundle.js", "web/swagger-ui.css", "web/docs.js"} <= set(parts)
    assert {client.get(part).status_code for part in parts} == {200}


def test_cached_files_are_not_sent_again(client):
    etag = client.get("/").headers["etag"]

    again = client.get("/", headers={"if-none-match": f'"other", W/{etag}'})
    changed = client.get("/", headers={"if-none-match": '"other"'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert changed.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/web", "/web/", "/web/index.html", "/web/none.js", "/web/..%20/settings.py", "/favicon.ico"),
        *("/redoc", "/docs/oauth2-redirect"),  # which the framework has unless told otherwise
    ],
)
def test_other_paths_stay_the_apis_404(client, path):
    answer = client.get(path)

    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
