"""Cuts of Lhotse (Żelasko et al., 2021): a line of a manifest, or a folder of shards (Shar)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Keys of a cut's custom fields that are used: those of Canary's prompts, and the split.
_CUSTOM = ("source_lang", "target_lang", "pnc", "language", "target_language", "punctuation", "split")


def is_cut(fields: Mapping[str, Any]) -> bool:
    """Return whether a line of a manifest is a cut."""
    return "supervisions" in fields or str(fields.get("type", "")).endswith("Cut")


def fields_of_cut(cut: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a cut, named as in our manifests.

    Raises:
        ValueError: if it is not a cut of one recording with one channel, in a file or a shard.
    """
    try:
        return _fields(cut)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"a cut without what Lhotse writes ({type(error).__name__}: {error})") from error


def _fields(cut: Mapping[str, Any]) -> dict[str, Any]:
    if cut.get("type", "MonoCut") != "MonoCut":
        raise ValueError(f"a {cut['type']} is not one recording; a MonoCut is")
    recording = cut["recording"]
    if recording.get("transforms"):
        raise ValueError("a recording with 'transforms' is not read: save the cuts with their audio (to_shar)")
    (source,) = recording["sources"] if len(recording["sources"]) == 1 else [None]
    if source is None or len(source.get("channels", [0])) > 1:
        raise ValueError("a channel of several is not read")
    supervisions = cut.get("supervisions") or []
    texts = [one["text"] for one in supervisions if one.get("text") is not None]
    custom = {**(supervisions[0].get("custom") or {} if supervisions else {}), **(cut.get("custom") or {})}
    fields = {key: value for key, value in custom.items() if key in _CUSTOM}
    fields["text"] = " ".join(texts) if texts else None
    fields["duration"] = duration = cut.get("duration")
    fields["speaker"] = next((one["speaker"] for one in supervisions if one.get("speaker")), None)
    language = next((one["language"] for one in supervisions if one.get("language")), None)
    if language is not None and "source_lang" not in fields:  # another name of the same key
        fields.setdefault("language", language)
    if source["type"] == "shar":
        return fields | {"audio": cut["id"], "is_in_shard": True}
    if source["type"] != "file":
        raise ValueError(f"a recording of type {source['type']!r} is not read; one of type 'file' is")
    fields |= {"audio": source["source"], "is_of_lhotse": True}
    if cut["start"] or (isinstance(duration, int | float) and duration < recording["duration"] - 0.01):
        fields["offset"] = cut["start"]
    return fields


def shards_of(folder: Path) -> list[Path]:
    """Return the files of cuts in a folder that Lhotse's Shar wrote, in order; none if it did not."""
    found = [*folder.glob("cuts.*.jsonl"), *folder.glob("cuts.*.jsonl.gz")]
    is_shar = any(tar_of_shar(path).exists() for path in found)
    return sorted(found) if is_shar else []


def tar_of_shar(cuts: Path) -> Path:
    """Return the tar of recordings beside a file of cuts."""
    number = cuts.name.removeprefix("cuts.").split(".jsonl")[0]
    return cuts.with_name(f"recording.{number}.tar")
