"""`python -m steno` is the `steno` command."""

import sys

from steno import main

sys.exit(main())
