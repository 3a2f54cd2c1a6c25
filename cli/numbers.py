"""Numbers of a command line, for ``type=`` of argparse: each raises ArgumentTypeError with a message for the user."""

import argparse
import math
from collections.abc import Callable


def positive(text: str) -> float:
    """Read a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return number


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a function that reads a whole number from ``least`` up to ``most``, if there is one."""

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else -1
        if number < least or (most is not None and number > most):
            bounds = f"from {least} on" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{text} is not a whole number {bounds}")
        return number

    return read


count = whole(1)
