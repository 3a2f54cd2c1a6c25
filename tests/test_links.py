"""Every link between the pages of the repository leads to a file, and to a heading of it."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_TOOLS = frozenset({"node_modules", "runs", "dist"})  # folders that tools fill
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """The pages of the repository, or of an archive of it."""
    below = (page for folder in ROOT.glob("[!.]*/") for page in folder.rglob("*.md"))
    return sorted(page for page in (*ROOT.glob("*.md"), *below) if _TOOLS.isdisjoint(page.relative_to(ROOT).parts))


def text_of(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as forges make them: lower case, punctuation dropped, spaces to hyphens."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(one == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", one) is not None for one in found)
        found.add(f"{anchor}-{number}" if number else anchor)
    return frozenset(found)


def broken(page: Path) -> list[str]:
    wrong = []
    for link in _LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_page = target.suffix == ".md"
        if not target.exists() or (anchor and is_page and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_a_link_to_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#three) [c](none.md) [d](https://example.org)\n", encoding="utf-8")

    assert broken(page) == ["#three", "none.md"]
