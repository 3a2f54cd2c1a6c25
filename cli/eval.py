"""`steno eval`: word error rate and speed over recordings with transcripts."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bulk.file_transcripts import Failed, Transcribed, transcribe_files
from cli.errors import CommandError
from cli.model_options import Subparsers, add_model_options, open_model, transcription_options
from cli.scoring import Score, Scorer

if TYPE_CHECKING:
    from models import Transcriber
    from training.clip import Clip


Scored = tuple["Clip", str, Score]  # a clip, its transcript and its score


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "eval",
        help="measure word error rate and speed",
        description="Measure word error rate (Whisper's English normaliser) and speed. The last line is one JSON "
        "object: wer and wer_by_source (fractions), rtfx (seconds of audio per second from files to text, without "
        "loading the model), audio_seconds, clips (those that did not fail), failed, decoder, device, dtype.",
    )
    parser.add_argument(
        "manifest",
        metavar="MANIFEST",
        help="JSON Lines with audio and text, a LibriSpeech folder, or what else `steno train run` reads",
    )
    add_model_options(parser)
    parser.add_argument("--split", help="only clips of this split")
    parser.add_argument("--source", help="only clips of this source")
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--output", metavar="FILE", help="write a JSON line for each clip that does not fail")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a table by source, and the JSON object."""
    scorer = Scorer()
    clips = _clips(args)
    if args.output:
        _write(Path(args.output), ())  # a file that cannot be written is an error now, not after the work
    model = open_model(args)

    started = time.perf_counter()
    transcribed = _transcribed(model, clips, args)
    elapsed = time.perf_counter() - started

    texts = [(clip, one.transcript.text, one.seconds) for clip, one in transcribed]
    scored = [(clip, text, scorer.score(clip.text or "", text, seconds)) for clip, text, seconds in texts]
    if args.output:
        _write(Path(args.output), scored)
    by_source = _by_source(scored)
    total = sum(by_source.values(), Score())
    if not args.json:
        _print_table([*by_source.items(), ("all", total)])
    failed = len(clips) - len(scored)
    summary = {
        "wer": total.wer,
        "wer_by_source": {source: score.wer for source, score in by_source.items()},
        "rtfx": total.seconds / elapsed,
        "audio_seconds": total.seconds,
        "clips": total.clips,
        "failed": failed,
        "decoder": args.decoder or model.decoders[0],
        "device": model.device.type,
        "dtype": model.precision,
    }
    print(json.dumps(summary))
    return 1 if failed else 0


def _clips(args: argparse.Namespace) -> list["Clip"]:
    from training.manifest import clips_of

    clips = [clip for clip in clips_of(Path(args.manifest), args.split) if args.source in (None, clip.source)]
    if not clips:
        raise CommandError(f"{args.manifest} has no clips of source {args.source!r}")
    for clip in clips:
        if clip.text is None:
            raise CommandError(f"{clip} has no transcript")
        if clip.byte_range is not None or clip.start is not None:
            raise CommandError(f"{clip} is a part of a file; here a clip is a whole one")
    return clips


def _transcribed(
    model: "Transcriber", clips: Sequence["Clip"], args: argparse.Namespace
) -> list[tuple["Clip", Transcribed]]:
    """Transcribe the clips, naming those that fail on stderr."""
    from tqdm import tqdm

    outcomes = transcribe_files(model, (str(clip.audio) for clip in clips), transcription_options(args))
    transcribed = []
    for clip, outcome in zip(clips, tqdm(outcomes, total=len(clips), unit="clip", disable=None), strict=True):
        if isinstance(outcome, Failed):
            tqdm.write(f"{clip.audio}: {outcome.error}", file=sys.stderr)
        else:
            transcribed.append((clip, outcome))
    return transcribed


def _by_source(scored: Iterable[Scored]) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for clip, _, score in scored:
        scores[clip.source] = scores.get(clip.source, Score()) + score
    return dict(sorted(scores.items()))


def _print_table(scores: Sequence[tuple[str, Score]]) -> None:
    width = max(len("source"), *(len(source) for source, _ in scores))
    print(f"{'source':{width}}  {'clips':>6}  {'minutes':>8}  {'words':>7}  {'WER %':>6}")
    for source, score in scores:
        wer = "-" if score.wer is None else f"{100 * score.wer:.2f}"
        print(f"{source:{width}}  {score.clips:6}  {score.seconds / 60:8.1f}  {score.words:7}  {wer:>6}")


def _write(path: Path, scored: Iterable[Scored]) -> None:
    try:
        # A file name may have bytes that are not UTF-8; backslashreplace makes them JSON escapes.
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for clip, text, score in scored:
                fields = {"audio": str(clip.audio), "source": clip.source, "duration": score.seconds}
                fields |= {"reference": clip.text, "text": text, "errors": score.errors, "words": score.words}
                file.write(json.dumps(fields, ensure_ascii=False) + "\n")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
