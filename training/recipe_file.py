"""Reading a recipe: YAML with known keys and checked types.

The keys are the fields of the dataclasses of training/recipe.py.
"""

import dataclasses
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from models.checkpoint.document import parse_document
from models.checkpoint.hub_name import hub_name
from models.checkpoint.location import checkpoint_path
from models.errors import CheckpointError
from training.errors import ManifestError, RecipeError
from training.manifest import manifests_of
from training.recipe import Recipe

# The parser written in C is ten times as fast.
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_recipe(path: Path) -> Recipe:
    """Read the recipe at ``path``; paths in it are relative to its folder. Checkpoints on the hub are downloaded.

    Raises:
        RecipeError: if it cannot be read, or a key or value is wrong; the message names the key, and its line if any.
    """
    try:
        content = path.read_bytes()
        document = parse_document(content, str(path))
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise RecipeError(str(error)) from error
    try:
        _check_keys(content)
        return _located(cast("Recipe", _record(Recipe, document, "", path.parent)), document, path.parent)
    except RecipeError as error:
        raise RecipeError(with_line(error, path)) from error


def with_line(error: RecipeError, path: Path) -> str:
    """Return an error's message with the recipe's path and the line of the key, or of the nearest key around it."""
    lines, key = _lines_of(path.read_bytes()), error.key
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{path}{f', line {lines[key][-1]}' if key else ''}: {error}"


def _check_keys(content: bytes) -> None:
    """Refuse a key that stands there twice."""
    for key, (first, *others) in _lines_of(content).items():
        if others:
            raise RecipeError(f"{key} stands there twice, first in line {first}", key)


def _lines_of(content: bytes) -> dict[str, list[int]]:
    """Return the lines of every key and item of a recipe; a key that stands there twice has two."""
    lines: dict[str, list[int]] = {}

    def note(key: str, place: yaml.Node, node: yaml.Node) -> None:
        lines.setdefault(key, []).append(place.start_mark.line + 1)
        walk(node, key)

    def walk(node: yaml.Node | None, key: str) -> None:
        if isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                note(f"{key}[{number}]", item, item)
        elif isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                note(f"{key}.{name.value}" if key else str(name.value), name, value)

    walk(yaml.compose(content, Loader=_Loader), "")
    return lines


def _located(recipe: Recipe, document: dict[Any, Any], folder: Path) -> Recipe:
    """Replace the names of checkpoints, which may be on the hub, by their paths."""
    if recipe.initial:
        recipe = dataclasses.replace(recipe, initial=_checkpoint(recipe, document["initial"], "initial", folder))
    if recipe.teacher:
        path = _checkpoint(recipe, document["teacher"]["checkpoint"], "teacher.checkpoint", folder)
        recipe = dataclasses.replace(recipe, teacher=dataclasses.replace(recipe.teacher, checkpoint=path))
    return recipe


def _checkpoint(recipe: Recipe, name: str, key: str, folder: Path) -> Path:
    path = folder / name
    try:
        if path.exists():
            return checkpoint_path(path)
        if hub_name(name):
            _check_files(recipe)
        found = checkpoint_path(name)
    except CheckpointError as error:
        raise RecipeError(f"{key}: {error}", key) from error
    except OSError as error:
        raise RecipeError(f"{key}: {path}: {error.strerror}", key) from error
    return path if found == Path(name) else found


def _check_files(recipe: Recipe) -> None:
    """Refuse a recipe that names a file which is not there, before a download that may take long."""
    named = [("data.manifests", path) for path in recipe.data.manifests]
    named += [("dev.manifest", recipe.dev.manifest)] if recipe.dev else []
    named += [("vocabulary", recipe.vocabulary)] if recipe.vocabulary else []
    named += [("languages", language.vocabulary) for language in recipe.languages or ()]
    for key, path in named:
        try:
            for file in manifests_of(path) if key == "data.manifests" else [path]:
                file.stat()
        except ManifestError as error:
            raise RecipeError(f"{key}: {error}", key) from error
        except OSError as error:
            raise RecipeError(f"{key}: {path}: {error.strerror}", key) from error


def _record(kind: type, values: object, key: str, folder: Path) -> object:
    """Build a dataclass from a mapping."""
    if not isinstance(values, dict):
        raise RecipeError(f"{key} must have keys and values", key)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    types_of = get_type_hints(kind)
    known: dict[str, object] = {}
    for name, value in values.items():
        full = f"{key}.{name}" if key else str(name)
        if name not in fields:
            raise RecipeError(f"unknown key {full}; known: {', '.join(fields)}", full)
        try:
            known[name] = _value(types_of[name], value, full, folder)
            _check_bounds(known[name], fields[name].metadata, full)
        except ValueError as error:
            raise RecipeError(str(error), full) from error
    missing = [name for name, field in fields.items() if name not in known and _is_required(field)]
    if missing:
        raise RecipeError(f"{key + '.' if key else ''}{missing[0]} is missing", key)
    try:
        return kind(**known)
    except ValueError as error:
        raise RecipeError(f"{key}: {error}" if key else str(error), key) from error


def _value(kind: Any, value: object, key: str, folder: Path) -> object:  # noqa: ANN401  # a type, as typing spells it
    """Return ``value`` converted to a type."""
    if get_origin(kind) in {Union, types.UnionType}:
        inner = next(option for option in get_args(kind) if option is not types.NoneType)
        return None if value is None else _value(inner, value, key, folder)
    if dataclasses.is_dataclass(kind):
        return _record(cast("type", kind), value, key, folder)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{key} is {value!r}; it may be {', '.join(get_args(kind))}")
        return value
    if get_origin(kind) is tuple:
        return _items(get_args(kind), value, key, folder)
    return _plain(kind, value, key, folder)


def _items(kinds: tuple[Any, ...], value: object, key: str, folder: Path) -> tuple[object, ...]:
    """Return a list as a tuple: of one or more items if the type ends in an ellipsis, else an ascending pair."""
    open_ended = kinds[-1] is Ellipsis
    if not isinstance(value, list) or not value or not (open_ended or len(value) == len(kinds)):
        raise ValueError(f"{key} must be a list of {'at least 1' if open_ended else len(kinds)}")
    # Messages give the number of an item only if it has keys.
    keys = [f"{key}[{number}]" if dataclasses.is_dataclass(kinds[0]) else key for number in range(len(value))]
    items = [_value(kinds[0], item, name, folder) for item, name in zip(value, keys, strict=True)]
    if not open_ended and items != sorted(items, key=float):  # type: ignore[arg-type]  # pairs are of numbers
        raise ValueError(f"{key} must go from low to high")
    return tuple(items)


def _plain(kind: type, value: object, key: str, folder: Path) -> object:
    if kind is Path and isinstance(value, str):
        return folder / value
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if kind is int and type(value) is int:
        return value
    if kind is float and not isinstance(value, bool) and isinstance(value, int | float | str):
        # YAML reads 1e-3 as text, because its numbers need a point before the exponent.
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    names = {Path: "a path", str: "text", bool: "true or false", int: "a whole number", float: "a number"}
    raise ValueError(f"{key} is {value!r}; it must be {names[kind]}")


def _check_bounds(value: object, bounds: Mapping[str, float], key: str) -> None:
    if value is None:
        return
    numbers = value if isinstance(value, tuple) else (value,)
    for number in numbers:
        inside = not bounds or (isinstance(number, int | float) and bounds["low"] <= number <= bounds["high"])
        if not inside:
            raise ValueError(f"{key} is {number}; it must be within {bounds['low']:g} and {bounds['high']:g}")


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
