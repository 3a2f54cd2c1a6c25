"""Run the measurements that need a GPU, the most useful first: the rows of docs/gpu-backlog.md.

Output, measured rows and the result of each step are kept in a folder. The same command continues after a stop; a step
that failed runs again only if it or its row is named. --toy --device cpu rehearses everything in minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

# A step that takes this many times its expected time is taken to hang.
_PATIENCE = 3.0
_TOY_MINUTES = 10  # of a step that is rehearsed: the expected time is a GPU's, and the CPU may be busy
_SHOWN_LINES = 40
# Ends a process and its children when its own input ends: when they are to end, or this process is killed.
_ENDING = ("sh", "-c", 'cat; kill -KILL "-$1" 2> /dev/null', "sh")


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a row.

    Attributes:
        row: row of docs/gpu-backlog.md.
        name: name of its files.
        minutes: expected time on a GPU.
        command: the arguments of ``python -m``; benchmarks have the options ``--device`` and ``--rows``.
        toy: options of its rehearsal, which override those of the command.
    """

    row: str
    name: str
    minutes: float
    command: tuple[str, ...]
    toy: tuple[str, ...] = ()

    def arguments(self, folder: Path, device: str, *, is_toy: bool) -> list[str]:
        """Return the arguments of ``python -m``, with device, file and, for a rehearsal, small sizes."""
        options = ("--device", device, "--rows", str(folder / f"{self.name}.jsonl"))
        given = {"benchmarks": options, "cli": options[:2]}.get(self.command[0], ())
        return [*self.command, *given, *(self.toy if is_toy else ())]


def _tests(name: str, minutes: float, *paths: str, row: str = "1") -> Step:
    # Another torch has new warnings, which are no failures.
    options = ("-q", "-p", "no:cacheprovider", "-W", "default", "-m", "gpu")
    command = ("pytest", *options, *(f"tests/{path}" for path in paths))
    return Step(row, name, minutes, command)


def _benchmark(row: str, name: str, minutes: float, command: str, toy: str) -> Step:
    return Step(row, name, minutes, ("benchmarks", *command.split()), tuple(toy.split()))


_OFFLINE_TOY = "--shape toy --utterances 6 --batch-seconds 20 --repeats 1"
_PEERS_TOY = "--shape toy --seconds 2 --batch 2 --rounds 2"
_LATENCY_TOY = "--shape toy --seconds 2 --batch 1 2 --repeats 3"
# The first half hour has what the project needs most; later steps say more of it.
STEPS = (
    Step("1a", "doctor", 1, ("cli", "doctor")),
    *(
        _benchmark(
            "2",
            f"offline-0.6b-{decoder}-idle",
            2,
            f"offline --shape 0.6b --dtypes bfloat16 --decoders {decoder} --batch-seconds 960 1920 --utterances 16384"
            " --repeats 2 --idle",
            _OFFLINE_TOY,
        )
        for decoder in ("tdt", "ctc")
    ),
    _benchmark(
        "2a",
        "latency-0.6b-tdt",
        1,
        # The largest graphs have 20 clips of 8 s.
        "latency --shape 0.6b --dtypes bfloat16 --seconds 8 --repeats 100 --batch 1 8 12 16 20 24 64",
        _LATENCY_TOY,
    ),
    _benchmark("4a", "served", 3, "served samples/austen.flac --rounds 3", "--rounds 1 --repeats 1 --clients 4"),
    _benchmark(
        "2h",
        "peers-0.6b-tdt",
        3,
        "peers --shape 0.6b --transducer tdt --dtypes bfloat16 --batch 1 16 128 --rounds 5",
        _PEERS_TOY,
    ),
    *(
        _benchmark(
            "2j",
            f"side-stream-{name}",
            1,
            "offline --shape 0.6b --dtypes bfloat16 --decoders tdt --utterances 16384 --repeats 2"
            f" --batch-seconds 960 1920{option}",
            _OFFLINE_TOY,
        )
        for name, option in (("on", ""), ("off", " --one-stream"))
    ),
    _benchmark(
        "2b",
        "search",
        3,
        "search --shape 0.6b --dtype bfloat16 --batch 1 16 128 257 1024 --windows 4 8",
        "--shape toy --seconds 3 --batch 1 2 --rounds 2 --windows 4",
    ),
    *(
        _benchmark(
            "2d",
            f"attention-{shape}",
            1.5,
            f"attention --shape {shape} --dtype bfloat16 --batch-seconds {seconds} --launches",
            "--shape toy --seconds 3 --batch-seconds 9 --rounds 2",
        )
        for shape, seconds in (("0.6b", 480), ("1.1b", 1920))
    ),
    _benchmark(
        "2i",
        "kernels",
        1,
        "kernels --shape 0.6b --dtype bfloat16",
        "--shape toy --dtype float32 --seconds 0.3 --batch 1 --rounds 1",
    ),
    _tests("tests-kernels", 2, "models/kernels"),
    _tests("tests-graphs", 2, "models/graphs", "models/search"),
    _tests("tests-models", 3, "models/test_golden.py", "models/test_recognition.py"),
    *(
        _benchmark(
            "2",
            f"offline-{shape}-{transducer}-{dtype}",
            minutes,
            f"offline --shape {shape} --transducer {transducer} --dtypes {dtype} --batch-seconds 480 960 1920 {set_}",
            _OFFLINE_TOY,
        )
        # Enough in bfloat16 that the first batch and the last texts, which do not overlap, are a thirtieth.
        for dtype, minutes, set_ in (
            ("bfloat16", 3, "--utterances 16384 --repeats 2"),
            ("float32", 1.5, "--utterances 2048"),
        )
        for shape in ("0.6b", "1.1b")
        for transducer in ("tdt", "rnnt")
    ),
    _benchmark(
        "2k",
        "dtypes",
        3,
        "offline --shape 0.6b --dtypes bfloat16 float16 tf32 --decoders tdt --utterances 8192 --batch-seconds 960",
        f"{_OFFLINE_TOY} --dtypes float32 float16",
    ),
    *(
        _benchmark(
            "2a",
            f"latency-0.6b-{name}",
            1,
            f"latency --shape 0.6b --dtypes bfloat16 --seconds 8 --repeats 100 {options}",
            _LATENCY_TOY,
        )
        for name, options in (
            ("ctc", "--batch 1 8 64 --decoder ctc"),
            ("rnnt", "--batch 1 8 64 --transducer rnnt"),
        )
    ),
    *(
        _benchmark(
            "2e",
            f"profile-{batch}-{decoder}",
            0.5,
            f"profile --shape 0.6b --decoder {decoder} --batch {batch} --dtypes bfloat16 --top 25",
            "--shape toy --seconds 2 --batch 2 --repeats 2",
        )
        for batch in (128, 1, 16)
        for decoder in ("tdt", "ctc")
    ),
    *(
        _benchmark(
            "2g",
            f"language-model-{name}",
            0.5,
            f"latency --model {model} --dtypes bfloat16 --seconds 8 --batch 1 8 64 --repeats 50",
            "--seconds 2 --batch 1 --repeats 2",
        )
        # The language model is found only by the name "bundled", not by the file.
        for name, model in (("beam", "bundled"), ("greedy", "models/bundled/steno-bundled.nemo"))
    ),
    _benchmark(
        "2h",
        "peers-1.1b-rnnt",
        3,
        "peers --shape 1.1b --transducer rnnt --dtypes bfloat16 --batch 1 16 128 --rounds 5",
        _PEERS_TOY,
    ),
    _benchmark(
        "2a",
        "latency-jasper",
        2,
        "latency --shape jasper10x5dr --dtypes float32 tf32 bfloat16 float16 --repeats 500",
        f"{_LATENCY_TOY} --dtypes float32 float16",
    ),
    _benchmark(
        "5",
        "budget",
        4,
        "latency --shape 0.6b --dtypes bfloat16 --seconds 8 30 60 120 --batch 1 4 16 64 --repeats 5",
        _LATENCY_TOY,
    ),
    *(
        _benchmark(
            "6",
            f"training-{name}",
            minutes,
            f"training --precision float32 tf32 bfloat16 float16 {options}",
            "--repeats 1 --batch 1 --seconds 1 --shape toy",
        )
        for name, minutes, options in (
            ("ctc", 0.5, "--batch 10 100"),
            ("tdt", 0.5, "--batch 10 100 --transducer tdt"),
            # As Jasper's tables of training have them.
            ("jasper", 2, "--recipe training/recipes/jasper.yaml --shape jasper10x5dr --batch 8 32 64 --seconds 16.7"),
            ("0.6b", 2, "--shape 0.6b --transducer tdt --batch 8 32 64 --seconds 16.7"),
        )
    ),
    _tests("tests-losses", 1, "training/losses", row="6"),
    _benchmark(
        "6",
        "losses",
        1,
        "losses --dtype bfloat16 float32 --seconds 40 --clips 64 1024",
        "--dtype float32 --seconds 1 --vocabulary 20 --width 16 --clips 2 --repeats 1",
    ),
    _benchmark("7", "english", 7, "train_english --minutes 5", "--toy --minutes 0.1 --compared 3"),
    *(
        _benchmark(
            "8",
            f"decoding-{seconds}",
            4,
            f"decoding --dtype bfloat16 --seconds {seconds} --tokens {tokens}",
            "--width 32 --encoder-layers 3 --decoder-layers 4 1 --seconds 2 --tokens 10 --batch 1 2 --repeats 1",
        )
        for seconds, tokens in ((30, 100), (10, 33))
    ),
)


class Endings:
    """The results of steps, kept in a file."""

    def __init__(self, path: Path) -> None:
        """Read the results of earlier runs."""
        self._path = path
        # The last line may be cut short, because the run was stopped while it was written.
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        endings = [json.loads(line) for line in lines if line.endswith("\n")]
        self._endings = {ending["name"]: ending for ending in endings}
        if len(endings) < len(lines):
            path.write_text("".join(lines[:-1]), encoding="utf-8")

    def __getitem__(self, name: str) -> str | None:
        """Return a step's result: "done" or what went wrong; None if it has not ended."""
        ending = self._endings.get(name)
        return None if ending is None else str(ending["ended"])

    def add(self, name: str, ended: str, seconds: float) -> None:
        """Add a result."""
        self._endings[name] = {"name": name, "ended": ended, "seconds": round(seconds, 1)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._endings[name]) + "\n")


def run_steps(
    steps: Sequence[Step],
    folder: Path,
    device: str,
    *,
    is_toy: bool = False,
    again: bool = False,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Run steps that have not ended, until the time is over.

    Args:
        steps: the steps, in this order.
        folder: the folder of their files.
        device: the device.
        is_toy: whether to rehearse them.
        again: whether to run failed steps again.
        seconds: time after which the running step is stopped; the next call begins with it.
        clock: monotonic seconds.

    Returns:
        The results of all steps that have ended, now or before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    endings, end = Endings(folder / "endings.jsonl"), clock() + seconds
    for step in tqdm(steps, unit="step", disable=None):
        ended = endings[step.name]
        if ended == "done" or (ended and not again):
            continue
        if clock() >= end:
            break
        began = clock()
        patience = 60 * (_TOY_MINUTES if is_toy else _PATIENCE * step.minutes)
        print(f"== {step.row} {step.name}: {' '.join(step.command)}", flush=True)
        ended = _run(
            [sys.executable, "-m", *step.arguments(folder, device, is_toy=is_toy)],
            folder / f"{step.name}.txt",
            min(end - began, patience),
            _environment(device),
        )
        if ended is None and clock() >= end:
            print("stopped, because the time is over; the same command goes on with it", flush=True)
            break
        endings.add(step.name, ended or f"took more than {patience:.0f} s", clock() - began)
        print(f"   {endings[step.name]} after {clock() - began:.0f} s", flush=True)
    return {step.name: ended for step in steps if (ended := endings[step.name])}


def _environment(device: str) -> dict[str, str]:
    # Without a GPU our kernels run in Triton's interpreter.
    return {**os.environ, **({"TRITON_INTERPRET": "1"} if device == "cpu" else {})}


def _run(command: Sequence[str], output: Path, seconds: float, environment: Mapping[str, str]) -> str | None:
    """Run a command and show the end of its output; return its result, or None after ``seconds``."""
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(  # noqa: S603  # the commands are those above
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        ending = [*_ENDING, str(process.pid)]
        with subprocess.Popen(ending, stdin=subprocess.PIPE, start_new_session=True):  # noqa: S603  # that above
            try:
                status = process.wait(seconds if seconds < float("inf") else None)
                ended = "done" if status == 0 else f"exit status {status}"
            except subprocess.TimeoutExpired:
                ended = None
        process.wait()
    # Without the line of JSON, which is in the file.
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    shown = [line for line in lines if not line.startswith("{")]
    print(*shown[-_SHOWN_LINES:], sep="\n", flush=True)
    return ended


def tables(steps: Sequence[Step], folder: Path) -> Iterator[str]:
    """Yield what steps have measured so far, as tables in Markdown."""
    for step in steps:
        path = folder / f"{step.name}.jsonl"
        if not path.exists():
            continue
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        about, *cells = [json.loads(line) for line in lines if line.endswith("\n")]
        rows = [row for cell in cells for row in cell["rows"]]
        columns = list(
            dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list))
        )
        yield f"{step.row} {step.name}: {about['device']}, torch {about['torch']}, {about['commit']}\n"
        yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
        for row in rows:
            yield f"| {' | '.join(_figure(row.get(name)) for name in columns)} |"


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these rows or steps, again if they failed")
    parser.add_argument(
        "--folder", type=Path, help="for output and results; default: runs/gpu-backlog, with --toy runs/gpu-backlog-toy"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop the running step after this time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="rehearse it, at sizes whose figures mean nothing")
    parser.add_argument("--list", action="store_true", help="list the steps and their results")
    parser.add_argument("--table", action="store_true", help="print what is measured as tables in Markdown")
    args = parser.parse_args()

    folder = args.folder or Path("runs/gpu-backlog-toy" if args.toy else "runs/gpu-backlog")
    steps = [step for step in STEPS if not args.rows or step.row in args.rows or step.name in args.rows]
    unknown = set(args.rows) - {step.row for step in STEPS} - {step.name for step in STEPS}
    if unknown:
        parser.error(f"there is no row or step {', '.join(sorted(unknown))}")
    if args.table:
        print(*tables(steps, folder), sep="\n")
        return
    if args.list:
        endings = Endings(folder / "endings.jsonl")
        for step in steps:
            print(
                f"{step.row:>3} {step.name:28} {step.minutes:5.1f} min  {endings[step.name] or '-':16}", *step.command
            )
        print(f"{sum(step.minutes for step in steps if not endings[step.name]):.0f} minutes are left")
        return
    ended = run_steps(steps, folder, args.device, is_toy=args.toy, again=bool(args.rows), seconds=60 * args.minutes)
    failed = [name for name, how in ended.items() if how != "done"]
    left = [step.name for step in steps if step.name not in ended]
    print(json.dumps({"benchmark": "gpu_backlog", "ended": ended, "left": left, "torch": torch.__version__}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
