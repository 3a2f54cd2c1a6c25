"""Print the Python requirements of an image: `requirements.py pyproject.toml`, one on each line."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["serve"]))
