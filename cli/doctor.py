"""`steno doctor`: what this machine has, what Steno will use of it, and whether that computes the right things.

The trials run in a child process, because a fast path of a GPU may end or hang it. Then another child goes on without
that path, as the service does.
"""

import argparse
import json
import platform
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from cli.errors import CommandError
from cli.model_options import MODEL_HELP, Subparsers

_TRIAL_SECONDS = 60.0
_FLAGS = ("sse4_2", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimddp", "bf16")
_PACKAGES = ("torch", "triton", "av", "soundfile", "onnxruntime", "numpy")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser("doctor", help="check this machine: what Steno will use of it, and that it works")
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--fast-paths", default="auto", help="auto, none, or names; see STENO_FAST_PATHS")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for reports")
    parser.add_argument("--trial", action="store_true", help=argparse.SUPPRESS)  # as the child
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the report; 1 if something computes wrong."""
    if args.trial:
        output = sys.stdout
        with redirect_stdout(sys.stderr):  # there Triton prints what does not compile
            print(json.dumps(_trial(args), ensure_ascii=False), file=output)
        return 0
    report = {"machine": _machine(), "packages": {name: _version_of(name) for name in _PACKAGES}} | _tried(args)
    is_well = report["speech"]["same_words"] and set(report["fast_paths"].values()) <= {"used", "slower", "off"}
    if args.json:
        print(json.dumps(report | {"well": is_well}, ensure_ascii=False))
    else:
        for topic, found in report.items():
            for name, value in found.items():
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
                print(f"{topic.replace('_', ' '):11} {name.replace('_', ' '):22} {shown}")
        print("well" if is_well else "not well: see above; a report of it is welcome, with the output of --json")
    return 0 if is_well else 1


def _machine() -> dict[str, Any]:
    """Return the processor and its limits."""
    from audio.pool import confinement_here
    from models.device.cpu import processor
    from models.device.resources import memory_bytes, processors

    try:
        known = next(
            line.partition(":")[2].split()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith(("flags", "Features"))
        )
    except (OSError, StopIteration):
        known = []
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": processor(),
        "instructions": [flag for flag in _FLAGS if flag in known],
        "processors": processors(),
        "memory_gb": round(memory_bytes() / 1e9, 1),
        "decoders_not_confined": list(confinement_here()) or "nothing is missing",
    }


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _tried(args: argparse.Namespace) -> dict[str, Any]:
    """Run the trials in children, each without what ended the ones before; one may end in a trial alone."""
    barred: dict[str, str] = {}
    while True:
        options = ["--model", args.model, "--device", args.device, "--fast-paths", _without(args.fast_paths, barred)]
        command = [sys.executable, "-P", "-m", "cli", "doctor", "--trial", *options]
        with (
            TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,  # noqa: S603  # ourselves
        ):
            assert child.stdout is not None
            watch: threading.Timer | None = None
            tried = None
            for line in child.stdout:
                if watch:
                    watch.cancel()
                said: dict[str, Any] = json.loads(line)
                if "speech" in said:
                    child.wait()
                    return said | {"fast_paths": said["fast_paths"] | barred}
                if tried := said["trying"]:
                    watch = threading.Timer(_TRIAL_SECONDS, child.kill)
                    watch.start()
            child.wait()
            errors.seek(0)
            error = errors.read()
        if tried is None or tried in barred:
            last = (error.strip() or "the trial ended without a word").splitlines()[-1]
            raise CommandError(last.removeprefix("steno: "))
        barred[tried] = "hung" if child.returncode == -9 else "failed"


def _without(names: str, barred: dict[str, str]) -> str:
    from models.device.fast_paths import FastPath

    allowed = {"auto": list(FastPath), "none": []}.get(names, names.split(","))
    return ",".join(name for name in allowed if name not in barred) or "none" if barred else names


def _trial(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the child says at last; trials of fast paths are printed as they begin.

    The sample is transcribed with all that the model uses, and in float32 by plain operations on the CPU.
    """
    import torch

    from models import load_model
    from models.device.fast_paths import FAST_PATHS
    from models.device.gpu import has_gpu
    from models.device.precision import default_dtype
    from service.engine.known_speech import clip, has_same_words

    FAST_PATHS.limit(args.fast_paths)
    FAST_PATHS.on_trying = lambda path: print(json.dumps({"trying": path}), file=sys.__stdout__, flush=True)
    try:
        device = torch.device(("cuda" if has_gpu() else "cpu") if args.device == "auto" else args.device)
        if device.type == "cuda" and not has_gpu():
            raise CommandError(f"device {args.device}: this machine, or this build of torch, has no CUDA")
        model = load_model(args.model, device, default_dtype(device))
        pcm = clip(model.sample_rate)
        model.model.prepare(1, len(pcm))
        (transcript,) = model.transcribe([pcm])
        with FAST_PATHS.plainly():
            (plain,) = load_model(args.model, "cpu", torch.float32).transcribe([pcm])
    except (ValueError, RuntimeError) as error:
        raise CommandError(str(error)) from error
    return {
        "device": _device(device, model.info()["family"], str(default_dtype(device)).removeprefix("torch.")),
        "speech": {
            "text": transcript.text,
            "in_float32": plain.text,
            "same_words": has_same_words(transcript.text, plain.text, is_bundled=args.model == "bundled"),
        },
        "fast_paths": FAST_PATHS.states() if device.type == "cuda" else {},
    }


def _device(device: Any, family: str, dtype: str) -> dict[str, Any]:  # noqa: ANN401  # torch is not imported yet
    """Return what computes, and how."""
    import torch

    from models.device.cpu import can_pack, has_products, multiplies_eight_bits_exactly
    from service.engine.process import driver

    found: dict[str, Any] = {"name": str(device), "model": family, "dtype": dtype}
    if torch.version.hip is not None:
        found["note"] = "this torch is for ROCm, which Steno does not use: it computes on the CPU"
    elif torch.backends.mps.is_available():
        found["note"] = "Steno does not use Apple's GPU: it computes on the CPU"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["gpu"] = properties.name
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["driver"] = driver()
        with suppress(ImportError):
            from triton.backends.nvidia.compiler import get_ptxas

            found["ptxas"] = get_ptxas(10 * properties.major + properties.minor).version
        found["memory_gb"] = round(properties.total_memory / 1e9, 1)
        return found
    found["threads"] = torch.get_num_threads()
    found["multiplies"] = [
        str(kind).removeprefix("torch.") for kind in (torch.bfloat16, torch.float16) if has_products(kind)
    ]
    found["packs"] = [str(kind).removeprefix("torch.") for kind in (torch.float32, torch.bfloat16) if can_pack(kind)]
    found["int8"] = "exact" if multiplies_eight_bits_exactly() else "not offered: no exact products of 8 bits"
    return found
