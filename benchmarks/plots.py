"""Pictures of what was measured: `python -m benchmarks plots OUT.svg FILE...`, files with JSON lines of `latency`.

Needs matplotlib (the `plots` extra).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt  # after the backend is chosen: there is no screen


def main() -> None:
    """Parse, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help=".svg or .png")
    parser.add_argument("files", type=Path, nargs="+")
    args = parser.parse_args()

    documents = [json.loads(path.read_text(encoding="utf-8").splitlines()[-1]) for path in args.files]
    figure, (latency, speed) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for document in documents:
        for dtype, seconds in sorted({(row["dtype"], row["seconds"]) for row in document["rows"]}):
            rows = [row for row in document["rows"] if (row["dtype"], row["seconds"]) == (dtype, seconds)]
            name = f"{_name(document)} {dtype}, {seconds:g} s"
            batches = [row["batch"] for row in rows]
            latency.plot(batches, [1000 * row["p95"] for row in rows], marker="o", label=name)
            speed.plot(batches, [row["rtfx"] for row in rows], marker="o", label=name)
    latency.set_ylabel("latency, 95th percentile, ms")
    speed.set_ylabel("RTFx")
    for axes in (latency, speed):
        axes.set_xlabel("batch")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
    speed.legend(fontsize="x-small")
    figure.suptitle(f"{documents[0]['device']}, {documents[0]['threads']} threads", fontsize="medium")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out)


def _name(document: dict[str, Any]) -> str:
    return f"{Path(document['model']).name.removesuffix('.nemo')} {document['decoder']}"


if __name__ == "__main__":
    main()
