"""Reading a folder that transformers' ``save_pretrained`` wrote: configurations, weights and a tokenizer."""

from functools import partial
from pathlib import Path
from typing import Any

from models.checkpoint.checkpoint import Checkpoint
from models.checkpoint.fit import Fit
from models.checkpoint.folder import Folder
from models.checkpoint.json_document import parse_json
from models.checkpoint.nemo_names import is_bookkeeping
from models.checkpoint.safetensors_files import read_safetensors
from models.checkpoint.transformers_config import Documents, parse_transformers_config
from models.checkpoint.transformers_names import transformers_names
from models.checkpoint.transformers_tokenizer import parse_tokenizer
from models.network import Network

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
PROCESSOR_FILE = "processor_config.json"
# Where the feature extractor was before processors kept it.
FEATURE_EXTRACTOR_FILE = "preprocessor_config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
MAX_CONFIG_BYTES = 8 * 2**20
MAX_TOKENIZER_BYTES = 16 * 2**20


def read_transformers(path: Path) -> Checkpoint:
    """Read a checkpoint, checked against itself: configuration, vocabulary and tensors agree.

    Raises:
        CheckpointError: if it cannot be read, is not safe, is not supported, or contradicts itself.
    """
    folder = Folder(path)
    config = parse_transformers_config(_documents(folder))
    tokenizer = parse_tokenizer(
        _read(folder, TOKENIZER_FILE, MAX_TOKENIZER_BYTES),
        _read_optional(folder, TOKENIZER_CONFIG_FILE),
        config.vocabulary_size,
    )
    fit = Fit(read_safetensors(folder))
    wanted = Network.without_weights(config).state_dict()
    state = fit.take_network(wanted, partial(transformers_names, encoder=config.encoder))
    fit.finish(ignored=is_bookkeeping)
    return Checkpoint(config, tokenizer, state, window=None, mel_bank=None)


def _documents(folder: Folder) -> Documents:
    config = _read(folder, CONFIG_FILE)
    processor = _read_optional(folder, PROCESSOR_FILE)
    feature_extractor = processor.get("feature_extractor")
    if not isinstance(feature_extractor, dict):
        feature_extractor = _read(folder, FEATURE_EXTRACTOR_FILE)
    return Documents(config, _read_optional(folder, GENERATION_FILE), processor, feature_extractor)


def _read(folder: Folder, name: str, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    return parse_json(folder.read(name, max_bytes), f"{folder.path}: {name}")


def _read_optional(folder: Folder, name: str) -> dict[str, Any]:
    return _read(folder, name) if folder.has(name) else {}
