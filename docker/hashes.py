"""Write the hashes of all that an image installs, by uv: `hashes.py UV TORCH_VERSION` (`make hashes`).

The versions are those of constraints.txt. pip takes nothing else then, whichever index or proxy answers.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docker" / "hashes"
HEADER = "# Written by `make hashes`, from pyproject.toml and constraints.txt.\n"
# What PyTorch's CUDA build brings: a CPU needs none of it.
_CUDA = re.compile(r"(nvidia|cuda)-|triton$")


def files(compiled: str) -> dict[str, str]:
    """Return the names of files and their content: PyTorch, what its CUDA build brings, and everything else."""
    parts = {"torch.txt": HEADER, "cuda.txt": HEADER, "packages.txt": HEADER}
    for entry in re.split(r"\n(?=\S)", compiled.strip()):
        name = entry.partition("==")[0]
        file = "torch.txt" if name == "torch" else "cuda.txt" if _CUDA.match(name) else "packages.txt"
        parts[file] += entry + "\n"
    return parts


def _compiled(uv: str, requirements: list[str], constraints: list[str]) -> str:
    options = (
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--generate-hashes",
        "--universal",
        "--python-version",
        "3.11",
    )
    more = "".join(f"{line}\n" for line in constraints)
    (FOLDER / "constraints.in").write_text(
        (ROOT / "constraints.txt").read_text(encoding="utf-8") + more, encoding="utf-8"
    )
    try:
        done = subprocess.run(
            [uv, "pip", "compile", *options, "--constraint", FOLDER / "constraints.in", "-"],
            input="\n".join(requirements),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    finally:
        (FOLDER / "constraints.in").unlink()
    return done.stdout


def main() -> None:
    """Write the files."""
    uv, torch = sys.argv[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["serve"]
    written = files(_compiled(uv, requirements, [f"torch=={torch}"]))
    written["build.txt"] = HEADER + _compiled(uv, project["build-system"]["requires"], [])
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
