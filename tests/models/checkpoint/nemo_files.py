"""Writing ``.nemo`` files, honest and otherwise, from the parts of a golden one or from a configuration."""

import gzip
import io
import tarfile
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml

from models import CheckpointError, load_model
from tests.conftest import GOLDEN

CONFIG = "model_config.yaml"
WEIGHTS = "model_weights.ckpt"
TOKENIZER = "tokenizer.model"
CONFIGS = Path(__file__).parent / "configs"


def all_members(path):
    """The files of an archive, by base name."""
    with tarfile.open(path) as tar:
        return {Path(member.name).name: tar.extractfile(member).read() for member in tar if member.isfile()}


@cache
def _golden_members(name):
    files = all_members(GOLDEN / name / "model.nemo")
    members = {CONFIG: files[CONFIG], WEIGHTS: files[WEIGHTS]}
    for file, content in files.items():
        if file.endswith("_tokenizer.model"):  # a model of characters has none
            members[CONFIG] = files[CONFIG].replace(file.encode(), TOKENIZER.encode())
            members[TOKENIZER] = content
    return members


def golden_members(name="hybrid-tdt-ctc-bpe"):
    """The files of a golden model that matter, by name."""
    return dict(_golden_members(name))


@cache
def _golden_document(name):
    return yaml.safe_load(_golden_members(name)[CONFIG])


def golden_document(name="hybrid-tdt-ctc-bpe"):
    """The configuration of a golden model, to be changed at will."""
    return deepcopy(_golden_document(name))


def golden_tensors(name="hybrid-tdt-ctc-bpe"):
    return torch.load(io.BytesIO(golden_members(name)[WEIGHTS]), weights_only=True)


def saved(content, **options):
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


def member(name, content=b"", **fields):
    """A header and its content; fields overwrite those of the header."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def archive(path, members, *, gzipped=False, layout=tarfile.GNU_FORMAT):
    """Write (header, content) pairs, or a dict of name to content, as a tar file; returns the path."""
    if isinstance(members, dict):
        members = [member(f"./{name}", content) for name, content in members.items()]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=layout) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(gzip.compress(buffer.getvalue()) if gzipped else buffer.getvalue())
    return path


def canary_with_aligner(path):
    """The golden Canary with a CTC model for times, packed as released ones are."""
    members = golden_members("fastconformer-ctc-bpe")
    config = members[CONFIG].replace(TOKENIZER.encode(), b"of_times_" + TOKENIZER.encode())
    times = {"timestamps_asr_model_config.yaml": config, "timestamps_asr_model_weights.ckpt": members[WEIGHTS]}
    canary = all_members(GOLDEN / "canary-small" / "model.nemo")
    return archive(path, canary | times | {"of_times_" + TOKENIZER: members[TOKENIZER]})


def with_config(members, document):
    return members | {CONFIG: yaml.safe_dump(document).encode()}


def put(document, key, value):
    """Set a value at a dotted key."""
    *sections, name = key.split(".")
    for section in sections:
        document = document.setdefault(section, {})
    document[name] = value


def drop(document, key):
    """Remove a dotted key."""
    *sections, name = key.split(".")
    for section in sections:
        document = document[section]
    del document[name]


def blamed(parse, document, key, value):
    """Change a dotted key of a configuration, and return what its refusal names."""
    put(document, key, value)
    with pytest.raises(CheckpointError) as caught:
        parse(document)
    return str(caught.value).partition(" is ")[0]


def leaves(document, path=""):
    """The dotted keys of a configuration, those of its sections too."""
    for key, value in document.items():
        name = f"{path}.{key}" if path else key
        yield name
        if isinstance(value, dict):
            yield from leaves(value, name)


def refusal(path, load=load_model):
    """Try to load a checkpoint, and return the error, whose message is one short line."""
    with pytest.raises(CheckpointError) as caught:
        load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 2500
    return caught.value
