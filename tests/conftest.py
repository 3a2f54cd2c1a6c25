"""Recordings and checkpoints that are not in the repository, and skips of tests that need them.

A test that lacks a program, a recording or a checkpoint skips and says what to install or set.
Under ``CI=true`` that skip is a failure, unless a GPU or a folder of facts is what it lacks.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from service.engine.environment import ALLOCATOR

# The models here are tiny: one thread computes them as fast as two, and does not spin at barriers while a neighbour
# has the other core. Engines that tests start inherit it. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What answers are compared with was recorded in float32, whatever this processor is fastest in.
os.environ.setdefault("STENO_DTYPE", "float32")
# One engine, where `auto` is one for each processor.
os.environ.setdefault("STENO_DEVICE", "cpu")
# As engines take the memory of a GPU.
for _name, _value in ALLOCATOR.items():
    os.environ.setdefault(_name, _value)
# A measured batch budget would make batches depend on how busy the machine is, and each start slower.
os.environ.setdefault("STENO_BATCH_SECONDS", "120")
# Without a GPU, kernels run in Triton's interpreter, which has to know before Triton is imported. Sandboxes show a GPU
# in one of these places and not in the others.
if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia"))):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell has its background jobs ignore interrupts, which tests send to themselves and to processes that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
SPEECH_DIR = Path(os.environ.get("SPEECH_DIR", SHARED / "speech"))
TEACHER = Path(os.environ.get("TEACHER", SHARED / "teacher" / "stt_en_conformer_ctc_small.nemo"))
CLIENTS = (
    ROOT / "examples" / "node_modules" / "openai",
    ROOT / ".clients" / "openai-1" / "openai",
    ROOT / "tests" / "clients" / "node_modules" / "ai",
    ROOT / ".clients" / "frameworks" / "litellm",
)
GOLDEN = ROOT / "tests" / "data" / "golden"
# Folders beside that of the recordings: configurations of released models, and golden models of newer layouts.
FACTS = SPEECH_DIR.parent


def _missing(item: pytest.Item) -> str | None:
    """Return what the test needs and this machine lacks, or None."""
    for marker in item.iter_markers("program"):
        if shutil.which(marker.args[0]) is None:
            return f"{marker.args[0]} is not installed (docs/test-packages.txt)"
    if item.get_closest_marker("speech") and not (SPEECH_DIR / "manifest.jsonl").is_file():
        return f"no recordings in {SPEECH_DIR} (set SPEECH_DIR)"
    if item.get_closest_marker("teacher") and not TEACHER.is_file():
        return f"no checkpoint at {TEACHER} (set TEACHER)"
    for marker in item.iter_markers("facts"):
        if not (FACTS / marker.args[0]).is_dir():
            return f"no {marker.args[0]} beside the recordings (set SPEECH_DIR)"
    if item.get_closest_marker("clients") and not (shutil.which("node") and all(path.is_dir() for path in CLIENTS)):
        return "not all clients are here (make clients)"
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            return "no CUDA device"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or under CI fail, a test whose needs are not met."""
    reason = _missing(item)
    if reason is None:
        return
    optional = item.get_closest_marker("gpu") or item.get_closest_marker("facts")
    if os.environ.get("CI") == "true" and not optional:
        pytest.fail(f"must run under CI=true, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def speech_dir() -> Path:
    """The folder of real recordings, with its manifest.jsonl."""
    return SPEECH_DIR


@pytest.fixture(scope="session")
def teacher() -> Path:
    """A released checkpoint with trained weights."""
    return TEACHER


@pytest.fixture(scope="session")
def golden() -> Path:
    """NeMo's results on small models: one folder a model, and ``clips/``."""
    return GOLDEN


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one ``.nemo`` file of no meaning, and an empty cache."""
    from huggingface_hub import constants

    from tests.models.checkpoint.hub_stand_in import LONG, NAME, Hub, Repository

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    with Hub({NAME: Repository({"main": {"small.nemo": LONG, "README.md": b"#"}})}) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield hub
