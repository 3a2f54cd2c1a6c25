"""Reading a ``.nemo`` file: NeMo's archive of a configuration, weights and a tokenizer."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from models.checkpoint.checkpoint import Checkpoint, IdentifierCheckpoint
from models.checkpoint.document import parse_document
from models.checkpoint.fit import Fit
from models.checkpoint.nemo.archive import MAX_MEMBER_BYTES, Archive, archive_in, open_archive
from models.checkpoint.nemo.config import NemoModel, parse_nemo_config
from models.checkpoint.nemo.identifier import parse_identifier
from models.checkpoint.nemo.names import (
    MEL_BANK,
    TIED,
    WINDOW,
    identifier_names,
    is_bookkeeping,
    is_training_of_identifier,
    nemo_names,
)
from models.checkpoint.nemo.tensors import read_tensors
from models.checkpoint.prompted import prompted
from models.config import EncoderConfig, FeatureConfig
from models.errors import (
    CheckpointError,
    UnreadableCheckpointError,
    UnsafeCheckpointError,
    UnsupportedValueError,
)
from models.heads.attention_decoder import padded_outputs
from models.network import IdentifierNetwork, Network
from models.text.tokenizers import (
    AggregateTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
)

log = logging.getLogger("steno.models")

CONFIG_FILE = "model_config.yaml"
WEIGHTS_FILE = "model_weights.ckpt"
# Files of a second model (CTC), which finds times of words; some Canary checkpoints have them.
ALIGNER_CONFIG_FILE = "timestamps_asr_model_config.yaml"
ALIGNER_WEIGHTS_FILE = "timestamps_asr_model_weights.ckpt"
MAX_CONFIG_BYTES = 8 * 2**20
MAX_TOKENIZER_BYTES = 16 * 2**20
_NAMED_FILE = re.compile(r"nemo:([\w.-]+)")  # in a configuration, a file of the archive


def read_nemo(path: Path) -> Checkpoint:
    """Read a checkpoint, and check that configuration, vocabulary and tensors agree.

    Raises:
        CheckpointError: if it cannot be read, is not safe, is not supported, or contradicts itself.
    """
    with open_archive(path) as archive:
        has_aligner = ALIGNER_CONFIG_FILE in archive
        checkpoint = _read_model(archive, CONFIG_FILE, WEIGHTS_FILE, has_aligner=has_aligner)
        return replace(checkpoint, aligner=_read_aligner(archive)) if has_aligner else checkpoint


def read_nemo_identifier(path: Path) -> IdentifierCheckpoint:
    """Read a language identifier, and check that its configuration and tensors agree.

    Raises:
        CheckpointError: if it cannot be read, is not safe, is not supported, or contradicts itself.
    """
    with open_archive(path) as archive:
        config = parse_identifier(_document(archive, CONFIG_FILE))
        fit = Fit(_tensors(archive, WEIGHTS_FILE))
        wanted = IdentifierNetwork.without_weights(config).state_dict()
        state = fit.take_network(wanted, partial(identifier_names, config=config))
        window, mel_bank = _front_end(fit, config.features)
        fit.finish(ignored=is_training_of_identifier)
        return IdentifierCheckpoint(config, state, window, mel_bank)


def check_nemo(file: IO[bytes], name: str) -> None:
    """Check the configuration of a checkpoint, of which nothing else is read: neither weights nor tokenizer.

    Args:
        file: the checkpoint, seekable.
        name: its name for errors.

    Raises:
        CheckpointError: if it is not supported, or cannot be read.
    """
    with archive_in(file, Path(name)) as archive:
        document = _document(archive, CONFIG_FILE)
        try:
            parse_nemo_config(document, has_aligner=ALIGNER_CONFIG_FILE in archive)
        except CheckpointError as error:
            try:
                parse_identifier(document)
            except CheckpointError:
                raise error from None


def aligner_files(path: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint's second model, as they are: configuration, weights, and what that names.

    Raises:
        CheckpointError: if they cannot be read.
    """
    with open_archive(path) as archive:
        config = archive.read(ALIGNER_CONFIG_FILE, MAX_CONFIG_BYTES)
        named = [name for name in _NAMED_FILE.findall(config.decode()) if name in archive]
        files = {name: archive.read(name, MAX_MEMBER_BYTES) for name in (ALIGNER_WEIGHTS_FILE, *named)}
        return {ALIGNER_CONFIG_FILE: config, **files}


def _document(archive: Archive, name: str) -> dict[Any, Any]:
    return parse_document(archive.read(name, MAX_CONFIG_BYTES), f"{archive.path}: {name}")


def _tensors(archive: Archive, name: str) -> dict[str, Tensor]:
    stream, size = archive.open(name)
    return read_tensors(stream, size, f"{archive.path}: {name}")


def _front_end(fit: Fit, features: FeatureConfig) -> tuple[Tensor | None, Tensor | None]:
    """Return the analysis window and the mel bands of a checkpoint, where it has them."""
    window = fit.take_optional(WINDOW, (features.window,))
    mel_bank = fit.take_optional(MEL_BANK, (1, features.mels, features.fft_size // 2 + 1))
    return window, None if mel_bank is None else mel_bank.squeeze(0)


def _read_aligner(archive: Archive) -> Checkpoint | None:
    """Read the second model; None if it cannot be used, because the first transcribes without it."""
    try:
        aligner = _read_model(archive, ALIGNER_CONFIG_FILE, ALIGNER_WEIGHTS_FILE)
    except CheckpointError as error:
        log.warning("the checkpoint's aligner, which finds times of words, cannot be used: %s", error)
        return None
    if not aligner.config.ctc:
        log.warning("the checkpoint's aligner, %s, cannot be used: it has no CTC decoder", aligner.config.name)
        return None
    return aligner


def _read_model(archive: Archive, config_file: str, weights_file: str, *, has_aligner: bool = False) -> Checkpoint:
    model = parse_nemo_config(_document(archive, config_file), has_aligner=has_aligner)
    tokenizer = _tokenizer(archive, model)
    config = prompted(model.config, tokenizer)

    fit = Fit(_tensors(archive, weights_file))
    wanted = Network.without_weights(config).state_dict()
    state = fit.take_network(wanted, partial(nemo_names, encoder=config.encoder))
    window, mel_bank = _front_end(fit, config.features)
    _check_embeddings(fit, state, config.encoder)
    fit.finish(ignored=is_bookkeeping)
    return Checkpoint(config, tokenizer, state, window, mel_bank)


def _check_embeddings(fit: Fit, state: Mapping[str, Tensor], encoder: EncoderConfig) -> None:
    """Note an embedding that does not have the form that search needs."""
    for name, embedding in state.items():
        if name.startswith("predictor.embedding") and embedding[-1].any():
            fit.note(f"{nemo_names(name, encoder)[0]} has a start symbol, its last row, that is not zero")
    for name, twin in TIED.items():
        tensor = fit.take((twin,), state[name].shape) if name in state else None
        if tensor is not None and not tensor.equal(state[name]):
            fit.note(f"{twin} must equal the embedding, and does not")


def _tokenizer(archive: Archive, model: NemoModel) -> Tokenizer:
    """Return the tokenizer, which has as many pieces as the model has labels."""
    if not model.tokenizer_files:
        return CharacterTokenizer(model.labels)
    parts = [_parsed(archive, name) for name in _bounded(archive, model.tokenizer_files)]
    is_whole = len(parts) == 1 and not model.tokenizer_names
    tokenizer = parts[0] if is_whole else AggregateTokenizer(parts, model.tokenizer_names)
    labels = len(tokenizer.pieces)
    if model.config.vocabulary_size != (padded_outputs(labels) if model.config.attention else labels):
        key, pieces = "the number of labels", f"the {labels} pieces of the tokenizer"
        raise UnsupportedValueError(key, model.config.vocabulary_size, pieces)
    return tokenizer


def _bounded(archive: Archive, names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse tokenizers that are named twice or too large together: parsing them would take unbounded memory."""
    if len(set(names)) < len(names):
        raise UnsafeCheckpointError(f"{archive.path} names one tokenizer for two parts of its vocabulary")
    if len(names) > 1 and sum(archive.open(name)[1] for name in names) > MAX_TOKENIZER_BYTES:
        raise UnsafeCheckpointError(f"{archive.path}: its tokenizers have more than {MAX_TOKENIZER_BYTES} bytes")
    return names


def _parsed(archive: Archive, name: str) -> SentencePieceTokenizer:
    try:
        return SentencePieceTokenizer(archive.read(name, MAX_TOKENIZER_BYTES))
    except CheckpointError:
        raise
    except ValueError as error:
        raise UnreadableCheckpointError(f"{archive.path}: {name!r} is {error}") from error
