"""`steno plot`: draw the progress of training runs."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import CommandError
from cli.model_options import Subparsers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most points of a line; steps are averaged for it.
_POINTS = 200


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plot",
        help="draw how training runs went",
        description="Draw loss, word error rate, learning rate, speed, padding and memory of training runs, from their "
        "logs (docs/training.md). Needs matplotlib: pip install 'steno[plots]'.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run, of `steno train --out`")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("plot.svg"), help=".svg, .png or .pdf (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Draw the plot."""
    logs = {str(folder): read_log(folder) for folder in args.runs}
    try:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed; it comes with: pip install 'steno[plots]'") from error
    figure, panels = plt.subplots(2, 3, figsize=(12, 6), layout="constrained", sharex=True)
    for name, lines in logs.items():
        _draw(list(panels.flat), name, lines)
    for axes in panels[1]:
        axes.set_xlabel("step")
    for axes in panels.flat:
        axes.grid(visible=True, alpha=0.3)
    panels[0][0].legend(fontsize="small")
    try:
        figure.savefig(args.out)
    except (OSError, ValueError) as error:
        raise CommandError(f"{args.out}: {getattr(error, 'strerror', None) or error}") from error
    print(args.out)
    return 0


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log.

    Raises:
        CommandError: if there is none, or it is damaged; the message names the line.
    """
    path = folder / "log.jsonl"
    lines: list[dict[str, Any]] = []
    try:
        # A line that is being written has no end yet.
        texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from error
    for number, text in enumerate((text for text in texts if text.endswith("\n")), start=1):
        try:
            lines.append({"step": int(json.loads(text)["step"]), **json.loads(text)})
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{path}, line {number}: not a line of a run's log") from error
    if not any("loss" in line for line in lines):
        raise CommandError(f"{path} has no step yet")
    return lines


def _draw(panels: "list[Axes]", name: str, lines: list[dict[str, Any]]) -> None:
    loss, errors, rate, speed, padding, memory = panels
    steps = [line for line in lines if "loss" in line]
    for axes, title, key, factor in (
        (loss, "loss", "loss", 1.0),
        (rate, "learning rate", "learning_rate", 1.0),
        (padding, "padding of audio and (dotted) of labels, %", "padding_share", 100.0),
        (memory, "peak of memory, GB", "memory", 1e-9),
    ):
        axes.plot(*_means([(line["step"], factor * line[key]) for line in steps if key in line]), label=name)
        axes.set_title(title, fontsize="medium")
    points = [(line["step"], 100 * line["label_padding_share"]) for line in steps if "label_padding_share" in line]
    padding.plot(*_means(points), linestyle=":", color=padding.lines[-1].get_color())
    audio = [0.0, *(line["audio_seconds"] for line in steps)]
    points = [
        (line["step"], (after - before) / line["seconds"])
        for line, before, after in zip(steps, audio, audio[1:], strict=False)
        if line.get("seconds")
    ]
    speed.plot(*_means(points), label=name)
    speed.set_title("audio seconds a second", fontsize="medium")
    measured = [line for line in lines if "all" in line.get("wer", {})]
    errors.plot([line["step"] for line in measured], [100 * line["wer"]["all"] for line in measured], marker=".")
    errors.set_title("WER on dev, %", fontsize="medium")


def _means(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return means of neighbouring points, so that a long run is a line and not a band."""
    size = max(1, -(-len(points) // _POINTS))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [group[-1][0] for group in groups], [sum(value for _, value in group) / len(group) for group in groups]
