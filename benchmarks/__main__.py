"""`python -m benchmarks` lists the benchmarks; `python -m benchmarks NAME ...` runs one."""

import os
import pkgutil
import runpy
import sys

import benchmarks
from service.engine.environment import ALLOCATOR

NOT_PROGRAMS = (
    "environment", "idle", "label_looping", "random_model", "rows", "services", "stub_engine", "timing", "__main__"
)  # fmt: skip

names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name not in NOT_PROGRAMS)
os.environ.update(ALLOCATOR | dict(os.environ))  # before torch looks
if len(sys.argv) > 1 and sys.argv[1] in names:
    name = sys.argv.pop(1)
    sys.argv[0] = f"benchmarks {name}"
    # Altered, because torch.compile and Triton find a function's module in sys.modules.
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
else:
    print("usage: python -m benchmarks NAME [--help]; NAME is one of:", *names, sep="\n  ")
    sys.exit(0 if len(sys.argv) == 1 else 2)
