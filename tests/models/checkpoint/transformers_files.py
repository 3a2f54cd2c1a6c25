"""Small folders as transformers writes them, honest and otherwise, without transformers, which takes long to import."""

import json
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file

from models.checkpoint.transformers.config import Documents, parse_transformers_config
from models.checkpoint.transformers.names import transformers_names
from models.network import Network
from tests.models.checkpoint.nemo_files import put

PIECES = ("<unk>", "▁the", "▁c", "at", "s", "▁", ",", "<0xE2>", "<0x82>", "<0xAC>")
LABELS = len(PIECES)
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DURATIONS = [0, 1, 2, 3, 4]

_ENCODER = {
    "model_type": "parakeet_encoder",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "conv_kernel_size": 3,
    "num_mel_bins": 16,
    "subsampling_conv_channels": 4,
    "subsampling_factor": 8,
    "attention_bias": True,
    "convolution_bias": True,
    "scale_input": False,
    "dropout": 0.1,
}
_HEADS = {
    "ctc": ("ParakeetForCTC", {"pad_token_id": LABELS, "ctc_loss_reduction": "mean"}),
    "rnnt": ("ParakeetForRNNT", {"blank_token_id": LABELS, "decoder_hidden_size": 8, "num_decoder_layers": 1}),
    "tdt": (
        "ParakeetForTDT",
        {"blank_token_id": LABELS, "decoder_hidden_size": 8, "num_decoder_layers": 1, "durations": DURATIONS},
    ),
}


def documents(kind="tdt"):
    """The JSON files of a folder by name, to be changed at will."""
    name, head = _HEADS[kind]
    return deepcopy(
        {
            "config.json": {
                "architectures": [name],
                "model_type": f"parakeet_{kind}",
                "vocab_size": LABELS + 1,
                "encoder_config": _ENCODER,
                "transformers_version": "5.23.0",
                "dtype": "float32",
                **head,
            },
            "generation_config.json": {
                "_from_model_config": True,
                "decoder_start_token_id": LABELS,
                "suppress_tokens": [LABELS + 1 + index for index in range(len(DURATIONS))],
            },
            "processor_config.json": {
                "decoder_type": kind,
                "feature_extractor": {"feature_extractor_type": "ParakeetFeatureExtractor", "feature_size": 16},
                "processor_class": "ParakeetProcessor",
            },
            "tokenizer.json": {
                "version": "1.0",
                "added_tokens": [{"id": 0, "content": "<unk>", "special": True}, _blank()],
                "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                "model": {"type": "BPE", "vocab": {piece: token for token, piece in enumerate(PIECES)}, "merges": []},
            },
            "tokenizer_config.json": {"clean_up_tokenization_spaces": False, "pad_token": "<blank>"},
        }
    )


def _blank():
    return {"id": LABELS, "content": "<blank>", "special": True}


@cache
def _tensors(kind):
    files = documents(kind)
    extractor = files["processor_config.json"]["feature_extractor"]
    config = parse_transformers_config(Documents(files["config.json"], {}, {}, extractor))
    torch.manual_seed(0)
    state = Network(config).state_dict()
    return {transformers_names(name, config.encoder)[0]: tensor for name, tensor in state.items()}


def tensors(kind="tdt"):
    """The tensors of a folder by transformers' names."""
    return dict(_tensors(kind))


def write(path, files, weights):
    """Write a folder; ``weights`` are tensors by name, or tensors by name for each file."""
    path.mkdir(exist_ok=True)
    for name, document in files.items():
        (path / name).write_text(json.dumps(document), encoding="utf-8")
    shards = weights if weights and isinstance(next(iter(weights.values())), dict) else {WEIGHTS: weights}
    for name, content in shards.items():
        save_file(content, path / name, metadata={"format": "pt"})
    return path


def folder(path, kind="tdt"):
    """Write an honest folder."""
    return write(Path(path), documents(kind), tensors(kind))


def sharded(path):
    """Write an honest folder whose weights are in two files."""
    whole = tensors()
    names = sorted(whole)
    shards = {
        "model-00001-of-00002.safetensors": {name: whole[name] for name in names[::2]},
        "model-00002-of-00002.safetensors": {name: whole[name] for name in names[1::2]},
    }
    places = {name: shard for shard, content in shards.items() for name in content}
    return write(Path(path), documents() | {INDEX: {"metadata": {}, "weight_map": places}}, shards)


def changed(saved, path, file, *changes):
    """A copy of a folder with other values at some dotted keys of a file."""
    shutil.copytree(saved, path)
    document = json.loads((path / file).read_text(encoding="utf-8"))
    for key, value in changes:
        put(document, key, value)
    (path / file).write_text(json.dumps(document), encoding="utf-8")
    return path
