"""The arrows between packages point one way (docs/architecture.md)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("audio", "benchmarks", "bulk", "cli", "models", "service", "training")

# What a package may import of the others; itself always.
MAY_IMPORT = {
    "audio": set(),
    "models": set(),
    "training": {"models", "audio"},
    "bulk": {"models", "audio"},
    "service": {"models", "audio"},
    "benchmarks": set(PACKAGES),
    "cli": set(PACKAGES),
}
# Inside service: a file under the key may not import any of the values.
FORBIDDEN_INSIDE = {
    "service/dispatch": ("fastapi", "starlette", "torch", "models", "service.http"),
    "service/jobs": ("fastapi", "starlette", "torch", "models", "service.http", "service.dispatch"),
    "service/engine": ("fastapi", "starlette", "service.http", "service.dispatch"),
    "service/http": ("torch", "models"),
    "service": ("cli", "benchmarks"),
    "models": ("fastapi", "pydantic_settings", "nemo"),
}
ONLY_HERE_TORCH = "service/engine/process.py"


def imports(path: Path) -> set[str]:
    """Every module a file names in an import, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = path.relative_to(ROOT).with_suffix("").parts[: -node.level]
                base = ".".join((*parts, node.module) if node.module else parts)
            else:
                base = node.module or ""
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


def files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    package = path.relative_to(ROOT).parts[0]
    foreign = {other for other in PACKAGES if any(within(module, other) for module in imports(path))} - {package}

    assert foreign <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_inner_borders_hold(path):
    relative = path.relative_to(ROOT).as_posix()
    for folder, banned in FORBIDDEN_INSIDE.items():
        if relative.startswith(folder + "/"):
            found = {name for name in imports(path) for ban in banned if within(name, ban)}
            if relative == ONLY_HERE_TORCH:
                found -= {name for name in found if within(name, "torch") or within(name, "models")}
            assert not found, f"{relative} imports {sorted(found)}"


def test_only_the_engine_process_imports_torch_in_the_service():
    service = [path for path in files() if path.relative_to(ROOT).parts[0] == "service"]

    heavy = {
        path.relative_to(ROOT).as_posix()
        for path in service
        if any(within(name, "torch") or within(name, "models") for name in imports(path))
    }

    assert heavy <= {ONLY_HERE_TORCH}
