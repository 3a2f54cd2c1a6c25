"""Steno as an installed package: the `steno` command, and the library.

When installed, the import packages (`models`, `audio` and the others) lie inside this folder, so that they cannot
collide with another package's `models`. They still import each other by their own names: importing `steno` puts this
folder first on the module path, and into PYTHONPATH for child processes. These have `-P`, because the folder that the
command was started in may have a `models.py` of its own.

    import steno

    model = steno.load_model("bundled")   # what `models` offers
"""

import os
import sys
from pathlib import Path
from typing import Any

_here = Path(__file__).resolve().parent
# In a checkout they lie beside this folder.
_FOLDERS = str(_here if (_here / "models").is_dir() else _here.parent)


def _find_ours_first() -> None:
    if _FOLDERS in sys.path:
        sys.path.remove(_FOLDERS)
    sys.path.insert(0, _FOLDERS)
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _FOLDERS]
    os.environ["PYTHONPATH"] = os.pathsep.join([_FOLDERS, *others])


def __getattr__(name: str) -> Any:  # noqa: ANN401  # of any type
    """Return an attribute of `models`, imported on first use because loading PyTorch takes a second."""
    import models

    if name not in models.MODULES:
        raise AttributeError(f"module 'steno' has no attribute {name!r}")
    return getattr(models, name)


def main() -> int:
    """Run the `steno` command and return its exit status."""
    from cli import main as run

    return run()


_find_ours_first()
