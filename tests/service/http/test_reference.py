"""The page at /docs; tests/service/test_web.py shows it in a browser."""

from html.parser import HTMLParser

import pytest

from service.http.reference import reference_page
from tests.service.serving import serving


class Page(HTMLParser):
    """What a page says and where it leads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.links, self.ids, self.tags = "", set(), set(), set()
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.add(value)
            if name == "id":
                self.ids.add(value)

    def handle_data(self, text):
        self.text += text


@pytest.fixture(scope="module")
def client():
    with serving(wait_ready=False) as service:
        yield service.client


@pytest.fixture(scope="module")
def page(client):
    return Page(client.get("/docs").text)


def test_every_operation_field_and_status_is_there(client, page):
    document = client.get("/openapi.json").json()

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in page.text
            assert all(status in page.text for status in operation["responses"])
    form = document["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert all(name in page.text for name in form["schema"]["properties"])
    assert set(document["components"]["schemas"]) == page.ids


def test_it_leads_to_this_service_only_and_nowhere_that_is_not(client, page):
    fragments = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    paths = page.links - {f"#{fragment}" for fragment in fragments}

    assert fragments <= page.ids
    assert "/openapi.json" in paths
    assert all(path.startswith("/") and not path.startswith("//") for path in paths)
    assert {client.get(path).status_code for path in paths} == {200}
    assert "script" not in page.tags


def test_it_may_load_nothing_from_elsewhere(client):
    assert client.get("/docs").headers["content-security-policy"].startswith("default-src 'self'")


def test_the_client_of_other_documentation_pages_is_gone(client):
    assert client.get("/redoc").status_code == client.get("/docs/oauth2-redirect").status_code == 404


def test_texts_are_no_markup():
    hostile = "<script>alert(1)</script>"
    field = {"type": "string", "description": hostile, "default": hostile}
    operation = {
        "description": hostile,
        "parameters": [{"name": hostile, "schema": field, "required": True}],
        "responses": {"200": {"description": hostile}},
    }
    document = {
        "info": {"title": hostile, "version": "1", "description": hostile},
        "paths": {f"/{hostile}": {"get": operation}},
        "components": {"schemas": {hostile: {"description": hostile, "properties": {hostile: field}}}},
    }

    assert "script" not in Page(reference_page(document)).tags
