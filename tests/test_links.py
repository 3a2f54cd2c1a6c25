"""Every link between the pages of the repository leads to a file, and to a heading of it."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Folders that tools fill.
_TOOLS = frozenset({".venv", ".clients", ".pytest_cache", "node_modules", "runs", "dist"})
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def pages(root: Path = ROOT) -> list[Path]:
    """The pages of the repository; of an archive of it, which has no list of its files, all but those of tools."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "*.md"]
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    else:
        names = [str(page.relative_to(root)) for page in root.rglob("*.md")]
    return [root / name for name in sorted(names) if _TOOLS.isdisjoint(Path(name).parts) and (root / name).exists()]


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


def test_the_pages_of_an_unpacked_archive_are_those_of_the_repository(tmp_path):
    for page in pages():
        copy = tmp_path / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("", encoding="utf-8")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "README.md").write_text("", encoding="utf-8")

    assert ROOT / "README.md" in pages()
    assert [page.relative_to(tmp_path) for page in pages(tmp_path)] == [page.relative_to(ROOT) for page in pages()]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_a_link_to_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#three) [c](none.md) [d](https://example.org)\n", encoding="utf-8")

    assert broken(page) == ["#three", "none.md"]
