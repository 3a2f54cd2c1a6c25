"""Weights that a recipe names by patterns."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from training.errors import RecipeError

_SHOWN = 12


def named_by(patterns: Sequence[str], names: Iterable[str], key: str) -> set[str]:
    """Return the names of weights or modules that match a pattern, or lie in a module that does.

    Patterns are those of a shell, such as ``encoder.layers.[0-3]`` or ``*.norm``; a star matches dots too. ``key`` is
    the recipe's key that has them.

    Raises:
        RecipeError: if a pattern matches none.
    """
    names = list(names)
    found: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not matching:
            known = list(dict.fromkeys(".".join(name.split(".")[:2]) for name in names))
            others = ", ..." if len(known) > _SHOWN else ""
            raise RecipeError(f"{key}: nothing is called {pattern!r} in {', '.join(known[:_SHOWN])}{others}", key)
        found |= matching
    return found
