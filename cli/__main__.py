"""`python -m cli` is `steno`."""

import sys

import steno  # noqa: F401  # so that child processes import the same packages
from cli import main

sys.exit(main())
