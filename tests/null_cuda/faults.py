"""The service on the CUDA that computes nothing, with a fast path that is faulty: it comes up, and later ones avoid it.

    python -m tests.null_cuda.faults [FAULT ...]      prints a line for each fault, and fails where one does

It takes two minutes for the path that hangs.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

MODEL = "tests/data/golden/fastconformer-tdt-bpe/model.nemo"
FAULTS = {
    "attention=disagrees": "disagreed",
    "sums=raises": "failed",
    "convolution=raises_later": "failed",
    "attention=ends_later": "failed",
    "encoder_graphs=raises": "failed",
    "search=ends": "failed",
    "encoder_graphs=hangs": "hung",
    "known_speech=disagrees": "disagreed",
}
_PATIENCE_SECONDS = 600


def states_of_service(folder: str, settings: dict[str, str]) -> tuple[dict[str, str], str]:
    """Start a service, wait until it is ready, and return the states of its fast paths and its log."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"XDG_CACHE_HOME": folder, "STENO_LOG_FORMAT": "text"} | settings
    command = [sys.executable, "-m", "cli", "serve", "--model", MODEL, "--device", "cuda", "--port", str(port)]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, env=environment, stderr=log) as service:
        try:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not _answer(port, "readyz"):
                assert service.poll() is None, "the service has ended"
                assert time.monotonic() < deadline, "the service is not ready"
                time.sleep(0.5)
            metrics = _answer(port, "metrics")
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(30)
            log.seek(0)
            text = log.read()
    labels = re.findall(r'steno_fast_path{.*path="(\w+)",state="(\w+)"} 1', metrics)
    return dict(labels), text


def _answer(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def main() -> None:
    """Try each fault twice, and then no fast path at all."""
    for fault in sys.argv[1:] or FAULTS:
        state = FAULTS[fault]
        path = fault.partition("=")[0]
        with tempfile.TemporaryDirectory() as folder:
            first, _ = states_of_service(folder, {"NULL_CUDA_FAULT": fault})
            again, log = states_of_service(folder, {"NULL_CUDA_FAULT": fault})
        assert first[path] == again[path] == state, (fault, first, again)
        assert "engine gone" not in log.partition("model ready")[0], log
        print(f"{fault}: {path} {state}, others {sorted(set(first.values()) - {state})}; not tried again")
    with tempfile.TemporaryDirectory() as folder:
        none, log = states_of_service(folder, {"STENO_FAST_PATHS": "none", "NULL_CUDA_FAULT": "any=ends"})
    assert set(none.values()) == {"off"}, none
    assert "engine gone" not in log.partition("model ready")[0], log
    print("STENO_FAST_PATHS=none: nothing of ours is touched")


if __name__ == "__main__":
    main()
