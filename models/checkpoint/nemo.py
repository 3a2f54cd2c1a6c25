"""Reading a ``.nemo`` file: NeMo's archive of a configuration, weights and a tokenizer."""

from functools import partial
from pathlib import Path

from models.checkpoint.archive import Archive, open_archive
from models.checkpoint.checkpoint import Checkpoint
from models.checkpoint.document import parse_document
from models.checkpoint.errors import CheckpointError, UnreadableCheckpointError, UnsupportedValueError
from models.checkpoint.fit import Fit
from models.checkpoint.nemo_config import NemoModel, parse_nemo_config
from models.checkpoint.nemo_names import MEL_BANK, WINDOW, is_bookkeeping, nemo_names
from models.checkpoint.tensors import read_tensors
from models.network import Network
from models.tokenizers import CharacterTokenizer, SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

CONFIG_FILE = "model_config.yaml"
WEIGHTS_FILE = "model_weights.ckpt"
MAX_CONFIG_BYTES = 8 * 2**20
MAX_TOKENIZER_BYTES = 16 * 2**20


def read_nemo(path: Path) -> Checkpoint:
    """Read a checkpoint, checked against itself: configuration, vocabulary and tensors agree.

    Raises:
        CheckpointError: if it cannot be read, is not safe, is not supported, or contradicts itself.
    """
    with open_archive(path) as archive:
        content = archive.read(CONFIG_FILE, MAX_CONFIG_BYTES)
        model = parse_nemo_config(parse_document(content, f"{path}: {CONFIG_FILE}"))
        tokenizer = _tokenizer(archive, model)
        stream, size = archive.open(WEIGHTS_FILE)
        tensors = read_tensors(stream, size, f"{path}: {WEIGHTS_FILE}")

    fit = Fit(tensors)
    wanted = Network.without_weights(model.config).state_dict()
    state = fit.take_network(wanted, partial(nemo_names, encoder=model.config.encoder))
    features = model.config.features
    window = fit.take_optional(WINDOW, (features.window,))
    mel_bank = fit.take_optional(MEL_BANK, (1, features.mels, features.fft_size // 2 + 1))
    embedding = state.get("predictor.embedding.weight")
    if embedding is not None and embedding[-1].any():
        fit.note("decoder.prediction.embed.weight has a start symbol, its last row, that is not zero")
    fit.finish(ignored=is_bookkeeping)
    return Checkpoint(model.config, tokenizer, state, window, None if mel_bank is None else mel_bank.squeeze(0))


def _tokenizer(archive: Archive, model: NemoModel) -> Tokenizer:
    """Return the tokenizer, which has as many pieces as the model has labels."""
    if model.tokenizer_file is None:
        return CharacterTokenizer(model.labels)
    kind = WordPieceTokenizer if model.word_pieces else SentencePieceTokenizer
    try:
        tokenizer: Tokenizer = kind(archive.read(model.tokenizer_file, MAX_TOKENIZER_BYTES))
    except CheckpointError:
        raise
    except ValueError as error:
        raise UnreadableCheckpointError(f"{archive.path}: {model.tokenizer_file!r} is {error}") from error
    if len(tokenizer.pieces) != model.config.vocabulary_size:
        key, pieces = "the number of labels", f"the {len(tokenizer.pieces)} pieces of the tokenizer"
        raise UnsupportedValueError(key, model.config.vocabulary_size, pieces)
    return tokenizer
