"""`steno transcribe`: recordings to text."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bulk.file_transcripts import Failed, Transcribed, transcribe_channels
from cli.errors import CommandError
from cli.model_options import Subparsers, add_model_options, open_model, transcription_options
from cli.numbers import whole
from cli.recordings import Recording, recordings, transcript_paths
from cli.renderings import FORMATS, TIMED, Format, formats, render

Outcome = Sequence[Transcribed]  # of each channel; of one, without --multichannel
Take = Callable[[Recording, Outcome], str | None]  # writes a transcript, or returns the text to print

_EPILOG = """\
examples:
  steno transcribe talk.mp3
  steno transcribe talk.mp3 --format srt > talk.srt
  steno transcribe recordings/ --format srt,json --output-dir transcripts/
  ffmpeg -i film.mkv -f wav - | steno transcribe -

With --output-dir, transcripts keep the subfolders of their recordings. A file is there only when it is whole, and a
recording whose transcript is there is skipped: after a stop, run the same command again.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "transcribe",
        help="turn recordings into text",
        description="Turn recordings (wav, flac, mp3, ogg, webm, mp4, m4a, aac, amr) into text, one line a file, or "
        "into files in a folder.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="recording; a folder: all recordings in it and below; -: a pipe"
    )
    parser.add_argument(
        "--format",
        type=formats,
        default=["txt"],
        metavar="{" + ",".join(FORMATS) + "}",
        help="json: tokens, words and their times as well; srt, vtt: subtitles; tsv: segments with their times in "
        "milliseconds; several, comma-separated, with --output-dir (default: txt)",
    )
    parser.add_argument("--output-dir", metavar="DIR", type=Path, help="write files instead: DIR/talk.srt for talk.mp3")
    parser.add_argument("--overwrite", action="store_true", help="transcribe again what is in --output-dir already")
    parser.add_argument(
        "--multichannel",
        action="store_true",
        help="transcribe each channel by itself, such as the two sides of a call, instead of their mean",
    )
    for name, least, most, meaning in (
        ("characters", 16, 200, "columns of a line of subtitles; Han and kana take two (default: 42)"),
        ("lines", 1, 8, "lines of a subtitle (default: 2)"),
        ("seconds", 1, 60, "longest time of a subtitle (default: 7)"),
    ):
        parser.add_argument(f"--subtitle-{name}", type=whole(least, most), metavar="N", help=meaning)
    add_model_options(parser)
    parser.set_defaults(run=run)


def _render(args: argparse.Namespace, one: Recording, outcome: Outcome, wanted: Format) -> str:
    from transcripts.subtitles import CueSize

    size = CueSize.of(args.subtitle_characters, args.subtitle_lines, args.subtitle_seconds)
    return render(one.name, outcome, wanted, size, has_numbers=args.multichannel)


def run(args: argparse.Namespace) -> int:
    """Print or write a transcript for each file; files that fail are named on stderr."""
    _check_effect(args)
    # Segments of all channels are sorted by time.
    args.timestamps = args.timestamps or args.multichannel or bool(set(args.format) & set(TIMED))
    with recordings(args.files) as found:
        return _print(args, found) if args.output_dir is None else _write(args, found)


def _check_effect(args: argparse.Namespace) -> None:
    """Refuse options that would change nothing."""
    if args.overwrite and args.output_dir is None:
        raise CommandError("--overwrite is for --output-dir")
    for name in ("characters", "lines", "seconds"):
        if getattr(args, f"subtitle_{name}") is not None and not {"srt", "vtt"} & set(args.format):
            raise CommandError(f"--subtitle-{name} is for --format srt or vtt")


def _print(args: argparse.Namespace, found: Sequence[Recording]) -> int:
    (wanted, *more) = args.format
    has_lines = wanted in TIMED or (args.multichannel and wanted == "txt")
    if more or (len(found) > 1 and has_lines):
        raise CommandError("several multi-line transcripts, or several formats, need --output-dir")

    def take(one: Recording, outcome: Outcome) -> str:
        line = _render(args, one, outcome, wanted)
        return f"{one.name}\t{line}" if wanted == "txt" and len(found) > 1 else line

    return 1 if _transcribe(args, found, take) else 0


def _write(args: argparse.Namespace, found: Sequence[Recording]) -> int:
    wanted: list[Format] = args.format
    paths = transcript_paths(found, args.output_dir, [f".{one}" for one in wanted])
    args.output_dir.mkdir(parents=True, exist_ok=True)  # an error now, not after the first transcripts
    named = [one for one in found if not _is_too_long(one, paths[one.location], args.output_dir)]
    failures = len(found) - len(named)
    left = [one for one in named if args.overwrite or not all(path.exists() for path in paths[one.location])]
    skipped = len(named) - len(left)
    if skipped and left:
        print(f"{skipped} of {len(found)} are there already, {len(left)} are left", file=sys.stderr)

    def take(one: Recording, outcome: Outcome) -> None:
        for path, form in zip(paths[one.location], wanted, strict=True):
            _write_whole(path, _render(args, one, outcome, form) + "\n")

    failed = _transcribe(args, left, take) if left else 0
    failures += failed
    print(f"{len(left) - failed} written, {skipped} skipped, {failures} failed", file=sys.stderr)
    return 1 if failures else 0


def _is_too_long(one: Recording, paths: Sequence[Path], folder: Path) -> bool:
    """Return whether the name of a transcript is longer than names in the folder may be, and say so on stderr."""
    for path in paths:
        try:
            (folder / path.name).lstat()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                print(f"{one.name}: {path}: {error.strerror}", file=sys.stderr)
                return True
    return False


def _transcribe(args: argparse.Namespace, found: Sequence[Recording], take: Take) -> int:
    """Transcribe in full batches, with a progress bar on a terminal; return how many files failed."""
    from tqdm import tqdm

    options = replace(transcription_options(args), by_channel=args.multichannel)
    outcomes = transcribe_channels(open_model(args), [one.location for one in found], options)
    failures = 0
    with tqdm(zip(found, outcomes, strict=True), total=len(found), unit="file", disable=None) as progress:
        for one, outcome in progress:
            if isinstance(outcome, Failed):
                failures += 1
                tqdm.write(f"{one.name}: {outcome.error}", file=sys.stderr)
            elif (line := take(one, outcome)) is not None:
                tqdm.write(line, file=sys.stdout)
    return failures


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all, however the run ends.

    A CommandError, if that cannot be, ends the run: later files would fail too.
    """
    # A name may have 255 bytes, and a character up to four of them.
    unfinished = path.with_name(f".{path.name[:48]}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
