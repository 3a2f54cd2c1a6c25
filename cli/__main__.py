"""`python -m cli` is `steno`."""

import sys

from cli import main

sys.exit(main())
