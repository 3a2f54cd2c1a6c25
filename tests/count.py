"""Prints how large Steno is: lines of Python, lines of documentation, settings and metrics (`make count`)."""

import subprocess
from pathlib import Path

from service.metrics import Metrics
from service.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("audio", "transcripts", "models", "service", "training", "bulk", "cli", "steno")


def lines(folder: str, ending: str = ".py") -> int:
    """Return the lines of the files of a folder that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name.endswith(ending)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths if path.exists())


if __name__ == "__main__":
    of_packages = {package: lines(package) for package in PRODUCT}
    counts = of_packages | {"all of these": sum(of_packages.values())}
    counts |= {"benchmarks": lines("benchmarks"), "tests": lines("tests"), "docs (*.md)": lines("docs", ".md")}
    counts["settings"] = len(Settings.model_fields)
    counts["metrics"] = sum(family.name.startswith("steno_") for family in Metrics().registry.collect())
    for name, count in counts.items():
        print(f"{name:12} {count:7,}")
