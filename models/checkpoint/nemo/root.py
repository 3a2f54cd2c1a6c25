"""The root of a NeMo configuration. One from before NeMo 1.0, with ``cls`` and ``params``, gets today's keys."""

from typing import Any

from models.checkpoint.section import Section

_CLASS, _CLASS_TODAY, _PARAMETERS = "cls", "_target_", "params"


def root_section(document: dict[Any, Any]) -> Section:
    """Return the section with the model's keys, which a training configuration has under ``model``."""
    document = _with_todays_keys(document)
    root = Section("", document)
    return root.section("model") if "target" not in document and "model" in document else root


def _with_todays_keys(value: Any) -> Any:  # noqa: ANN401  # what YAML holds
    """Return a configuration with ``cls`` renamed to ``_target_``, and ``params`` merged into the mapping around them.

    NeMo does the same when it restores such a checkpoint (``maybe_update_config_version``).
    """
    if not isinstance(value, dict):
        return value
    section = dict(value)
    if _CLASS in section and _CLASS_TODAY not in section:
        section[_CLASS_TODAY] = section.pop(_CLASS)
    if isinstance(section.get(_PARAMETERS), dict):
        section |= section.pop(_PARAMETERS)
    return {key: _with_todays_keys(one) for key, one in section.items()}
