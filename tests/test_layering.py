"""The arrows between packages point one way (docs/architecture.md)."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import models

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("audio", "benchmarks", "bulk", "cli", "models", "service", "training", "transcripts")

# What a package may import of the others; itself always.
MAY_IMPORT = {
    "audio": set(),
    "transcripts": set(),
    "models": {"transcripts"},
    "training": {"models", "audio", "transcripts"},
    "bulk": {"models", "audio", "transcripts"},
    "service": {"models", "audio", "transcripts"},
    "benchmarks": set(PACKAGES),
    "cli": set(PACKAGES),
}
# Inside service: a file under the key may not import any of the values.
FORBIDDEN_INSIDE = {
    "service/dispatch": ("fastapi", "starlette", "service.http"),
    "service/jobs": ("fastapi", "starlette", "service.http", "service.dispatch"),
    "service/engine": ("fastapi", "starlette", "service.http", "service.dispatch"),
    "service/http": ("service.workers",),
    "service": ("cli", "benchmarks"),
    "models": ("fastapi", "pydantic_settings", "nemo"),
    "transcripts": ("fastapi", "starlette", "torch"),
}
ONLY_HERE_TORCH = "service/engine/process.py"
# What the rest of the service may import of models: none of it imports torch.
SHARED = ("models.bundled", "models.device.resources", "models.download")


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
            assert not found, f"{relative} imports {sorted(found)}"


def test_folders_and_files_of_models_are_in_no_circle():
    imported: dict[str, set[str]] = {}
    for path in (ROOT / "models").rglob("*.py"):
        place = path.relative_to(ROOT).parts[1].removesuffix(".py")
        if place != "__init__":
            names = {name.split(".")[1] for name in imports(path) if name.startswith("models.")}
            imported.setdefault(place, set()).update(names - {place})
    places = {place: names & set(imported) for place, names in imported.items()}

    assert list(TopologicalSorter(places).static_order())


def test_only_the_engine_process_imports_torch_in_the_service():
    service = [path for path in files() if path.relative_to(ROOT).parts[0] == "service"]

    heavy = {
        path.relative_to(ROOT).as_posix()
        for path in service
        for name in imports(path)
        if within(name, "torch") or (within(name, "models") and not any(within(name, shared) for shared in SHARED))
    }

    assert heavy <= {ONLY_HERE_TORCH}


@pytest.mark.slow
def test_a_process_without_a_model_has_no_torch():
    program = "import sys, models, service.server, service.engine.loop; sys.exit('torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)

    assert done.returncode == 0


def test_each_name_of_models_is_there():
    assert all(hasattr(models, name) for name in models.MODULES)
    assert not hasattr(models, "Nothing")
