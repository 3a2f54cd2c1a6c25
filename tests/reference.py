"""The tables of the documentation that the code makes: settings, metrics, errors. `make reference` writes them."""

import re
from collections.abc import Iterator
from pathlib import Path

from service.http.error_codes import ErrorCode
from service.metrics import Metrics
from service.settings import PREFIX, Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"


def settings() -> Iterator[str]:
    """Rows of the table of settings."""
    yield from ("| variable | default | |", "|---|---|---|")
    for name, field in Settings.model_fields.items():
        default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
        shown = "unset" if default is None else default
        yield f"| `{PREFIX}{name.upper()}` | {shown} | {field.description} |"


def metrics() -> Iterator[str]:
    """Rows of the table of metrics."""
    yield from ("| metric | type | |", "|---|---|---|")
    for family in Metrics().registry.collect():
        if family.name.startswith("steno_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield f"| `{name}` | {family.type} | {family.documentation} |"


def errors() -> Iterator[str]:
    """Rows of the table of errors."""
    yield from ("| status | code | when | retry |", "|---|---|---|---|")
    for code in sorted(ErrorCode, key=lambda code: code.value.status):
        status, when, is_temporary = code.value
        retry = "after `Retry-After`" if is_temporary else "no"
        yield f"| {status} | `{code}` | {when} | {retry} |"


TABLES = {"operations.md": (settings, metrics), "api.md": (errors,)}


def written(page: str) -> str:
    """Return a page of docs with its tables as the code has them now."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for table in TABLES[page]:
        rows = list(table())
        head = re.escape("\n".join(rows[:2]) + "\n")
        text, count = re.subn(rf"(?<=\n){head}(\|.*\n)*", lambda _, rows=rows: "\n".join(rows) + "\n", text)
        if count != 1:
            raise ValueError(f"{page} has {count} tables that begin with {rows[0]!r}")
    return text


if __name__ == "__main__":
    for page in TABLES:
        (DOCS / page).write_text(written(page), encoding="utf-8")
