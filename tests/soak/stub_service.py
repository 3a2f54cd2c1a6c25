"""A service over the stub engine, as a process of its own: `python -m tests.soak.stub_service PORT`."""

import sys

from service import logs, server
from service.engine.supervisor import STUB_ENGINE
from service.settings import Settings

if __name__ == "__main__":
    logs.configure("json", "warning")
    server.run(Settings(model="stub.nemo", port=int(sys.argv[1]), log_level="warning"), STUB_ENGINE)
