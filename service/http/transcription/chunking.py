"""`chunking_strategy` of OpenAI's API: how a recording is cut."""

from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from audio.segment.segmenter import SegmentRule


class ServerVad(BaseModel):
    """Cut at every pause, even in short recordings; the fields and their defaults are OpenAI's."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["server_vad"]
    threshold: Annotated[float, Field(ge=0, le=1, description="Probability from which sound is speech.")] = 0.5
    prefix_padding_ms: Annotated[int, Field(ge=0, le=5_000, description="Audio kept before speech.")] = 300
    silence_duration_ms: Annotated[int, Field(ge=0, le=10_000, description="Silence that ends a segment.")] = 200

    def rule(self, longest_seconds: float) -> SegmentRule:
        """Return the rule for segments of at most ``longest_seconds``."""
        return SegmentRule(
            longest=longest_seconds,
            pause=self.silence_duration_ms / 1000,
            before=self.prefix_padding_ms / 1000,
            after=0.15,
            threshold=self.threshold,
        )


def _parsed(value: object) -> object:
    """Parse a form's value: a name, bare or as JSON, or an object, as JSON or from its parts."""
    if isinstance(value, str) and value not in _NAMED:
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise ValueError("neither 'auto', 'none' nor an object as JSON") from None
    if isinstance(value, dict) and value.keys() == {"type"} and isinstance(value["type"], str):
        value = value["type"] if value["type"] in _NAMED else value
    return _NAMED.get(value, value) if isinstance(value, str) else value


# `auto` is the default. `none`, an extension, takes everything for speech, so that nothing is left out.
_NAMED: dict[str, object] = {"auto": None, "none": {"type": "server_vad", "threshold": 0}}

ChunkingStrategy = Annotated[
    ServerVad | None,
    BeforeValidator(_parsed),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "enum": list(_NAMED)}, ServerVad.model_json_schema(), {"type": "null"}]}
    ),
]
