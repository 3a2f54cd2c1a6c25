"""A service over the stub engine, as a process of its own: `python -m tests.soak.stub_service PORT HTTP_PROCESSES`."""

import sys

from service import logs, server
from service.engine.supervisor import STUB_ENGINE
from service.settings import Settings

if __name__ == "__main__":
    logs.configure("json", "warning")
    port, http_processes = map(int, sys.argv[1:])
    settings = Settings(model="stub.nemo", port=port, http_processes=http_processes, log_level="warning")
    server.run(settings, STUB_ENGINE)
