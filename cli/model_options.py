"""Command-line options that choose a model and how it runs; loading that model."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audio.limits import AudioLimits
from audio.segment.segmenter import DEFAULT_UTTERANCE_SECONDS, MIN_UTTERANCE_SECONDS
from bulk.file_transcripts import CPU_BATCH_SECONDS, GPU_BATCH_SECONDS, Options
from cli.errors import CommandError
from cli.numbers import count, positive
from transcripts.languages import NAMES, language_code
from transcripts.phrases import PhraseError, read_phrases
from transcripts.prompt import Prompt

if TYPE_CHECKING:
    import torch

    from models import Transcriber

AUTO = "auto"  # of --language: find it

Subparsers = Any  # argparse names this type only privately

MODEL_HELP = (
    "checkpoint: a .nemo file, a folder that transformers wrote, or a name on the hub (owner/name or "
    "owner/name@revision); default: the model that ships with Steno"
)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `steno transcribe`, `eval` and `batch` share."""
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--decoder", choices=("ctc", "rnnt", "tdt", "aed"), help="for hybrid models (default: the transducer)"
    )
    parser.add_argument(
        "--language",
        type=_code,
        metavar="LANGUAGE",
        help="spoken language (en, en-US, eng or english), for models of several languages; auto: the model or "
        "--language-identifier finds it",
    )
    parser.add_argument(
        "--language-identifier",
        metavar="MODEL",
        help="model that finds the spoken language where --language does not name it (NVIDIA's AmberNet), for models "
        "whose prompt names it (Canary; default: English is assumed)",
    )
    parser.add_argument(
        "--languages",
        type=_codes,
        default=[],
        metavar="LANGUAGES",
        help="languages that may be spoken, comma-separated (default: all of the model), for --language-identifier, or "
        "for models of several scripts, which then write no other",
    )
    parser.add_argument(
        "--target-language",
        type=_code,
        metavar="LANGUAGE",
        help="language of the text; another one than spoken translates",
    )
    parser.add_argument("--no-punctuation", action="store_true", help="leave out punctuation and capitals (Canary)")
    parser.add_argument("--itn", action="store_true", help="ask the model to write numbers as people do (Canary)")
    parser.add_argument("--timestamps", action="store_true", help="let the model write the times of words (Canary)")
    parser.add_argument(
        "--phrases",
        type=_phrases,
        metavar="FILE",
        help="phrases that are likely to be said, such as names: one a line, with a weight after a tab if it is not 1",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "tf32", "bfloat16", "float16", "int8"),
        default="auto",
        help="auto: bfloat16 on GPUs since Ampere and on CPUs that are fast in it, float16 on Volta and Turing, else "
        "float32; tf32 is for GPUs since Ampere, int8 for Conformers on a CPU",
    )
    parser.add_argument(
        "--batch-seconds",
        type=positive,
        metavar="N",
        help="seconds of audio and padding that are computed at the same time; halved when they do not fit the memory "
        f"(default: {CPU_BATCH_SECONDS:g} on a CPU, {GPU_BATCH_SECONDS:g} on a GPU)",
    )
    parser.add_argument(
        "--local-attention",
        metavar="N",
        help="encoder frames on each side that a Conformer attends to, for long utterances (default: all); of a model "
        "for streams, one of the pairs that `steno info` lists, such as 70,6",
    )
    parser.add_argument(
        "--beam",
        type=count,
        metavar="N",
        help="beam width of an attention decoder (Canary; default: what the checkpoint says)",
    )
    parser.add_argument(
        "--language-model",
        metavar="FILE",
        help="for a CTC decoder or a transducer: an ARPA file of words (KenLM), or what `steno train language-model` "
        "made; none: without (default: the bundled model's own)",
    )
    parser.add_argument(
        "--aligner",
        metavar="MODEL",
        help="model with a CTC decoder that finds the times of an attention decoder's (Canary's) words "
        "(default: that of the checkpoint, if it has one)",
    )
    parser.add_argument(
        "--max-seconds",
        type=positive,
        default=AudioLimits().max_seconds,
        metavar="N",
        help="longest recording that is accepted, in seconds (default: %(default)g)",
    )
    parser.add_argument(
        "--utterance-seconds",
        type=_utterance_seconds,
        metavar="N",
        help="longest piece that the model is given; longer audio is cut at pauses (default: files of up to "
        f"{DEFAULT_UTTERANCE_SECONDS:g} s whole, longer ones in pieces of the length that `steno info` names)",
    )


def _code(text: str) -> str:
    """Return the code of a language, named as in the service's forms; the model may refuse any other text."""
    try:
        return language_code(text)
    except ValueError:
        return text.strip().lower()


def _codes(text: str) -> list[str]:
    return [_code(language) for language in text.split(",") if language.strip()]


def _phrases(path: str) -> str:
    try:
        return read_phrases(Path(path))
    except PhraseError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _utterance_seconds(text: str) -> float:
    seconds = positive(text)
    if seconds < MIN_UTTERANCE_SECONDS:
        raise argparse.ArgumentTypeError(f"at least {MIN_UTTERANCE_SECONDS:g} s")
    return seconds


def open_model(args: argparse.Namespace) -> "Transcriber":
    """Load ``args.model`` on the device and in the dtype of the options.

    Raises:
        CommandError: if it cannot be loaded or cannot do what the options ask for, or there is no such device.
    """
    from models import PromptError, default_dtype, load_model

    device = torch_device(args.device)
    dtype = default_dtype(device) if args.dtype == "auto" else args.dtype
    try:
        model = load_model(
            args.model,
            device,
            dtype,
            attention_context=args.local_attention,
            beam=args.beam,
            language_model=args.language_model,
            aligner=args.aligner,
            language_identifier=args.language_identifier,
        )
    except ValueError as error:  # a CheckpointError, or an option that is not for this model
        raise CommandError(str(error)) from error
    if args.decoder not in (None, *model.decoders):
        raise CommandError(f"{args.model} has no {args.decoder} decoder; it has {', '.join(model.decoders)}")
    if args.beam is not None and (args.decoder or model.decoders[0]) != "aed":
        raise CommandError("--beam is for models with an attention decoder (Canary)")
    if args.aligner is not None and "aed" not in model.decoders:
        raise CommandError("--aligner is for models with an attention decoder (Canary)")
    _check_language(args, model)
    try:
        model.transcribe([], **_prompt(args)._asdict())
    except PromptError as error:
        option = "no-punctuation" if error.field == "punctuation" else error.field.replace("_", "-")
        raise CommandError(f"--{option}: {error}") from error
    return model


def torch_device(name: str) -> "torch.device":
    """Return the device of an option, auto, cpu or cuda; raise CommandError if there is no such device."""
    import torch

    from models.device.gpu import has_gpu

    if name == "cuda" and not has_gpu():
        raise CommandError("there is no CUDA device here, or this build of PyTorch cannot use it")
    return torch.device("cuda" if name != "cpu" and has_gpu() else "cpu")


def _check_language(args: argparse.Namespace, model: "Transcriber") -> None:
    """Check that the options on the spoken language fit the model and each other; say if one has no effect."""
    needs_language = "aed" in model.decoders
    if args.language_identifier is not None and not needs_language:
        raise CommandError("--language-identifier is for models whose prompt names the language (Canary)")
    if args.language == AUTO and needs_language and model.language_identifier is None:
        raise CommandError("--language auto needs --language-identifier for this model; left out, English is assumed")
    has_scripts = len(model.info()["scripts"]) > 1
    if args.language not in (None, AUTO) and model.languages is None and not has_scripts:
        # Not refused: it may be right, and a script may name it for every model.
        print(f"--language has no effect: {args.model} does not say which languages it speaks", file=sys.stderr)
    if not args.languages:
        return
    if args.language not in (None, AUTO) or not (model.language_identifier or has_scripts):
        raise CommandError("--languages is for --language-identifier and models of several scripts, without --language")
    known = {*(model.languages or NAMES)}
    if model.language_identifier:
        known &= {*model.language_identifier.languages}
    if unknown := [code for code in args.languages if code not in known]:
        raise CommandError(f"--languages: {unknown[0]!r} is not one of {', '.join(sorted(known))}")


def transcription_options(args: argparse.Namespace) -> Options:
    """Return the options of ``transcribe_files``."""
    return Options(
        decoder=args.decoder,
        prompt=_prompt(args),
        languages=args.languages,
        batch_seconds=args.batch_seconds,
        limits=AudioLimits(max_seconds=args.max_seconds),
        utterance_seconds=args.utterance_seconds,
    )


def _prompt(args: argparse.Namespace) -> Prompt:
    return Prompt(
        language=None if args.language == AUTO else args.language,
        target_language=args.target_language,
        punctuation=not args.no_punctuation,
        timestamps=args.timestamps,
        itn=args.itn,
        phrases=args.phrases or "",
        written_languages=tuple(args.languages or ()),
    )
