"""Loading a model by the name that a user gives: its checkpoint, changed by options, and the models beside it."""

from dataclasses import replace
from pathlib import Path

import torch

from models import bundled
from models.checkpoint import Checkpoint, read_checkpoint
from models.checkpoint.location import checkpoint_path
from models.config import MAX_BEAM, AttentionContext, ConformerConfig
from models.device.precision import (
    DTYPES,
    checked_precision,
    default_dtype,
    dtype_of_identifier,
    warn_of_slow_dtype,
)
from models.download import OnDownload
from models.language_identifier import load_identifier
from models.model import Model
from models.transcriber import Transcriber


def load_model(
    path: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str = torch.float32,
    attention_context: int | str | None = None,
    beam: int | None = None,
    on_download: OnDownload | None = None,
    language_model: str | Path | None = None,
    aligner: str | Path | None = None,
    language_identifier: str | Path | None = None,
) -> Transcriber:
    """Load a checkpoint for transcription.

    Args:
        path: a ``.nemo`` file, a folder with one or that transformers wrote, a name on the hub (``owner/name`` or
            ``owner/name@revision``), which is downloaded first, or "bundled" for the model that ships with Steno.
        device: the device that it computes on.
        dtype: dtype of weights and activations, float32, bfloat16 or float16; or int8, on a CPU, which rounds the
            weights of a Conformer and the inputs of its products; or the name of one of these, or "tf32", which is
            float32 whose products round their factors to 10 bits, on GPUs since Ampere. Features, sums, norms,
            softmaxes, decisions and confidences are float32 in all of them.
        attention_context: encoder frames on each side that a Conformer trained with full attention attends to instead.
            Memory is then linear in the length of a recording, and transcripts differ (Rekesh et al., 2023; NeMo's
            ``change_attention_model``). Or the frames before and after, such as "70,6": one of the pairs that a model
            for streams was trained with, if they are several (``attention_contexts`` of ``info``).
        beam: beam width of an attention decoder's search, 1 to 32; None is that of the checkpoint. A step computes
            ``beam`` rows for each utterance.
        on_download: gets the progress; None draws a progress bar if standard error is a terminal.
        language_model: an ARPA file, or one that `steno train language-model` made with this vocabulary, for a beam of
            the CTC decoder and the greedy search of a transducer. None is the bundled model's own, and none for others;
            "none" is none for all.
        aligner: a checkpoint with a CTC decoder, named like ``path``, that finds the times of an attention decoder's
            words; other models do not need it. None is the checkpoint's own, if it has one.
        language_identifier: a checkpoint that finds the spoken language where a prompt must name it and does not
            (Canary); other models do not need it. None: such a model assumes its default, mostly English.

    Raises:
        CheckpointError: a ValueError, if one of the files cannot be loaded; one line says why.
        ValueError: if ``dtype`` is unknown, or not for this device or model; ``attention_context`` or
            ``language_model`` is not for this model; ``aligner`` has no CTC decoder, or another sample rate;
            ``language_identifier`` knows none of the model's languages; or ``beam`` is out of bounds.
    """
    precision = checked_precision(dtype, torch.device(device))
    warn_of_slow_dtype(DTYPES[precision], torch.device(device))
    languages = bundled.LANGUAGES if path == bundled.NAME else None
    checkpoint = read_checkpoint(checkpoint_path(path, on_download))
    if attention_context is not None:
        checkpoint = _with_context(checkpoint, attention_context)
    if beam is not None:
        checkpoint = _with_beam(checkpoint, beam)
    if language_model is None and path == bundled.NAME:
        language_model = bundled.LANGUAGE_MODEL
    aligning = checkpoint.aligner
    if aligner is not None and checkpoint.config.prompts:
        aligning = read_checkpoint(checkpoint_path(aligner, on_download))
    identifier = None
    if language_identifier is not None and checkpoint.config.prompts:
        rounded = dtype_of_identifier(precision, torch.device(device))
        identifier = load_identifier(language_identifier, device, rounded, on_download)
    language_model = None if language_model == "none" else language_model
    model = Model(checkpoint, torch.device(device), precision, languages, language_model)
    if aligning is None:
        return Transcriber(model, None, identifier)
    for_aligner = default_dtype(model.device) if model.dtype is torch.int8 else precision
    return Transcriber(model, Model(aligning, model.device, for_aligner), identifier)


def _with_context(checkpoint: Checkpoint, context: int | str) -> Checkpoint:
    encoder = checkpoint.config.encoder
    known = {str(one): one for one in encoder.attention_contexts} if isinstance(encoder, ConformerConfig) else {}
    if known and context not in known:
        raise ValueError(f"attention_context {context} is not one of the model's: {'; '.join(known)}")
    if not known and not (str(context).isdecimal() and int(context) > 0):
        raise ValueError(f"attention_context {context} is not a number of frames above 0")
    if not isinstance(encoder, ConformerConfig) or (encoder.attention_context and not known):
        raise ValueError("attention_context is for Conformers that attend to the whole clip")
    chosen = known[str(context)] if known else AttentionContext(int(context), int(context))
    encoder = replace(encoder, attention_context=chosen)
    return replace(checkpoint, config=replace(checkpoint.config, encoder=encoder))


def _with_beam(checkpoint: Checkpoint, beam: int) -> Checkpoint:
    attention = checkpoint.config.attention
    if not 1 <= beam <= MAX_BEAM:
        raise ValueError(f"beam {beam} is not between 1 and {MAX_BEAM}")
    if attention is None:
        return checkpoint
    return replace(checkpoint, config=replace(checkpoint.config, attention=replace(attention, beam=beam)))
