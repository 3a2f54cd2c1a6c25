"""Code and documentation use the field's words: phrases that once had to be read twice do not come back."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "audio",
    "benchmarks",
    "bulk",
    "cli",
    "deploy",
    "docker",
    "docs",
    "models",
    "service",
    "steno",
    "training",
    "transcripts",
)
SUFFIXES = {".py", ".md", ".js", ".html", ".yaml", ".yml"}

# A phrase, and what to write instead.
INSTEAD = {
    "so many": "the number's name",
    "whoever": "the role: the client, the operator, the caller",
    "whom": "the role: the client, the operator, the caller",
    "nobody": "no client, no request",
    "told": "given, set, configured",
    "heard": "transcribed, decoded, received",
    "brought in": "loaded",
    "let go": "released, unloaded",
    "laid out": "collated, staged, stored",
    "surely": "the condition under which it holds",
}


def pages() -> list[Path]:
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    return sorted([*inside, *ROOT.glob("*.md")])


def test_no_phrase_that_must_be_read_twice_comes_back():
    words = "|".join(phrase.replace(" ", r"\s+(?:#\s*)?") for phrase in INSTEAD)
    pattern = re.compile(rf"\b(?:{words})\b", re.IGNORECASE)

    found = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        for match in pattern.finditer(text):
            phrase = " ".join(match[0].lower().replace("#", " ").split())
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line}: not {phrase!r}, but {INSTEAD[phrase]}")

    assert not found, "\n".join(found)
