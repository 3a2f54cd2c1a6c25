"""Reading a folder that transformers' ``save_pretrained`` wrote: configurations, weights and a tokenizer."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from models.checkpoint.checkpoint import Checkpoint
from models.checkpoint.fit import Fit
from models.checkpoint.nemo.names import is_bookkeeping
from models.checkpoint.prompted import prompted
from models.checkpoint.section import Section
from models.checkpoint.transformers import canary, cohere
from models.checkpoint.transformers.config import Documents, parse_transformers_config
from models.checkpoint.transformers.folder import Folder
from models.checkpoint.transformers.json_document import parse_json
from models.checkpoint.transformers.names import transformers_names
from models.checkpoint.transformers.safetensors_files import read_safetensors
from models.checkpoint.transformers.tokenizer import parse_tokenizer
from models.config import AttentionDecoderConfig, EncoderConfig
from models.errors import UnsupportedValueError
from models.heads.attention_decoder import position_table
from models.network import Network
from models.text.prompt_writer import END
from models.text.tokenizers import Tokenizer

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
PROCESSOR_FILE = "processor_config.json"
# The feature extractor's file before it became part of the processor's.
FEATURE_EXTRACTOR_FILE = "preprocessor_config.json"
CONFIG_FILES = (CONFIG_FILE, GENERATION_FILE, PROCESSOR_FILE, FEATURE_EXTRACTOR_FILE)
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
MAX_CONFIG_BYTES = 8 * 2**20
MAX_TOKENIZER_BYTES = 16 * 2**20


def read_transformers(path: Path) -> Checkpoint:
    """Read a checkpoint, and check that configuration, vocabulary and tensors agree.

    Raises:
        CheckpointError: if it cannot be read, is not safe, is not supported, or contradicts itself.
    """
    folder = Folder(path)
    documents = _documents(folder)
    config = parse_transformers_config(documents)
    tokenizer = parse_tokenizer(
        _read(folder, TOKENIZER_FILE, MAX_TOKENIZER_BYTES),
        _read_optional(folder, TOKENIZER_CONFIG_FILE),
        config.vocabulary_size,
    )
    config = prompted(config, tokenizer)
    fit = Fit(read_safetensors(folder))
    wanted = Network.without_weights(config).state_dict()
    if config.attention:
        _check_end(documents.config, tokenizer)
    if config.attention and config.attention.tied:
        state = _canary_state(fit, wanted, config.encoder, config.attention)
    elif config.attention:
        state = fit.take_network(wanted, partial(cohere.cohere_names, encoder=config.encoder))
    else:
        state = fit.take_network(wanted, partial(transformers_names, encoder=config.encoder))
    fit.finish(ignored=cohere.is_unused if config.attention else is_bookkeeping)
    return Checkpoint(config, tokenizer, state, window=None, mel_bank=None)


def check_transformers(path: Path) -> None:
    """Check the configuration in a folder, of which nothing else is read: neither weights nor tokenizer.

    Raises:
        CheckpointError: if it is not supported, or cannot be read.
    """
    parse_transformers_config(_documents(Folder(path)))


def _canary_state(
    fit: Fit, wanted: dict[str, Tensor], encoder: EncoderConfig, decoder: AttentionDecoderConfig
) -> dict[str, Tensor]:
    """Take a Canary's tensors; the table of positions is computed, and the output layer is the embedding."""
    in_the_file = {name: like for name, like in wanted.items() if name != canary.POSITIONS}
    state = fit.take_network(in_the_file, partial(canary.canary_names, encoder=encoder))
    embedding = state.get(canary.EMBEDDING)
    if embedding is not None:
        twin = fit.take_optional(canary.TIED, embedding.shape)
        if twin is not None and not twin.equal(embedding):
            fit.note(f"{canary.TIED} must equal the embedding, and does not")
    return state | {canary.POSITIONS: position_table(decoder.positions, decoder.width, paired=False)}


def _check_end(config: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    end = canary.end_token(Section("", config))
    if not (end < len(tokenizer.pieces) and tokenizer.pieces[end] == END):
        raise UnsupportedValueError("eos_token_id", end, f"that of {END}, {tokenizer.pieces.index(END)}")


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
