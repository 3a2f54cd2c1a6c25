"""Bounds of a recipe's numbers."""

from dataclasses import field
from typing import Any


def within(low: float, high: float, **options: Any) -> Any:  # noqa: ANN401  # a field of any type
    """Return a field with a number, or several, within bounds."""
    return field(metadata={"low": low, "high": high}, **options)
