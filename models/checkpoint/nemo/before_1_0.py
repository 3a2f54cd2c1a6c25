"""Configurations from before NeMo 1.0, in which a section was a class and its parameters."""

from typing import Any

_CLASS, _CLASS_TODAY, _PARAMETERS = "cls", "_target_", "params"


def with_todays_keys(value: Any) -> Any:  # noqa: ANN401  # what YAML holds
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
    return {key: with_todays_keys(one) for key, one in section.items()}
