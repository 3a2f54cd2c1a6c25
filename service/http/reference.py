"""The page at /docs: the OpenAPI document for people, rendered once at start-up.

FastAPI's own would load Swagger UI from another host, and a copy of that in the package would be megabytes of script.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} API</title>
<link rel="icon" href="/web/icon.svg">
<link rel="stylesheet" href="/web/style.css">
<link rel="stylesheet" href="/web/reference.css">
</head>
<body>
<header>
<h1>{title} {version} API</h1>
<p>{description} <a href="/openapi.json">OpenAPI</a> <a href="/">Page</a></p>
</header>
<main>
{sections}
</main>
</body>
</html>
"""


def reference_page(document: Schema) -> str:
    """Render an OpenAPI document: a section for each operation, then one for each schema."""
    known = document["components"]["schemas"]
    operations = (
        _operation(f"{method.upper()} {path}", operation, known)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = (_schema(name, schema) for name, schema in known.items())
    info = {key: _prose(document["info"][key]) for key in ("title", "version", "description")}
    return _PAGE.format(**info, sections="\n".join((*operations, *schemas)))


def _operation(title: str, operation: Schema, known: Mapping[str, Schema]) -> str:
    fields = [
        (parameter["name"], parameter["schema"], parameter["required"]) for parameter in operation.get("parameters", ())
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content["schema"]
        fields += _fields(known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema)
    answers = [
        (f"<code>{status}</code>", _answers(answer.get("content", {})), _prose(answer["description"]))
        for status, answer in sorted(operation["responses"].items())
    ]
    parts = [f"<h2><code>{escape(title)}</code></h2>", f"<p>{_prose(operation['description'])}</p>"]
    if fields:
        parts.append(_table(("field", "type", ""), map(_row, fields)))
    parts.append(_table(("status", "answer", ""), answers))
    return f"<section>{''.join(parts)}</section>"


def _schema(name: str, schema: Schema) -> str:
    head = f"<h2>{escape(name)}</h2><p>{_prose(schema['description'])}</p>"
    table = _table(("field", "type", ""), map(_row, _fields(schema)))
    return f'<section id="{escape(name)}">{head}{table}</section>'


def _fields(schema: Schema) -> list[tuple[str, Schema, bool]]:
    required = schema.get("required", ())
    return [(name, field, name in required) for name, field in schema["properties"].items()]


def _row(field: tuple[str, Schema, bool]) -> tuple[str, str, str]:
    name, schema, required = field
    note = [_prose(schema.get("description", ""))]
    if schema.get("default") not in (None, []):
        note.append(f"Default: <code>{escape(json.dumps(schema['default']))}</code>.")
    return f"<code>{escape(name)}</code>{' (required)' if required else ''}", _type(schema), " ".join(note)


def _type(schema: Schema) -> str:
    """Say in a few words what a value may be."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object" and "properties" in schema:
        return ", ".join(f"<code>{escape(name)}</code> {_type(field)}" for name, field, _ in _fields(schema))
    return escape(schema.get("format") or schema.get("type") or "anything")


def _answers(content: Mapping[str, Schema]) -> str:
    return ", ".join(_type(body["schema"]) if body.get("schema") else escape(kind) for kind, body in content.items())


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    def line(cells: tuple[str, ...], tag: str) -> Iterator[str]:
        yield "<tr>"
        yield from (f"<{tag}>{cell}</{tag}>" for cell in cells)
        yield "</tr>"

    body = "".join(piece for row in rows for piece in line(row, "td"))
    return f"<table><thead>{''.join(line(heads, 'th'))}</thead><tbody>{body}</tbody></table>"


def _prose(text: str) -> str:
    """Escape a text; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
