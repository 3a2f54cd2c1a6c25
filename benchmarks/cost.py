"""The cost of a million hours of audio, from the price of an hour and a measured RTFx.

`python -m benchmarks cost "2 cores" 0.08 cpu.json H200 5.00 gpu.json`: a name, a price per hour of the machine, and a
file with the JSON line of `offline`, whose best row counts (or the RTFx itself). Shares are relative to the first row.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

HOURS = 1_000_000


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its price per hour, and its audio-hours per hour."""

    name: str
    price: float
    rtfx: float

    @property
    def cost(self) -> float:
        """The cost of a million hours of audio, in the price's currency."""
        return self.price * HOURS / self.rtfx


def main() -> None:
    """Parse, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="NAME PRICE RTFX", help="three arguments for each row")
    args = parser.parse_args()
    if len(args.rows) % 3:
        parser.error("a row is a name, a price per hour, and an RTFx or a file")

    triples = zip(args.rows[::3], args.rows[1::3], args.rows[2::3], strict=True)
    rows = [Machine(name, float(price), rtfx_of(measured)) for name, price, measured in triples]
    print(f"{'':24} {'an hour':>10} {'RTFx':>10} {'1e6 hours':>12} {'of the first':>13}")
    for row in rows:
        print(f"{row.name:24} {row.price:10.3f} {row.rtfx:10.1f} {row.cost:12.0f} {row.cost / rows[0].cost:13.3f}")
    print(json.dumps({"benchmark": "cost", "rows": [asdict(row) | {"cost": row.cost} for row in rows]}))


def rtfx_of(measured: str) -> float:
    """Return an RTFx that is a number, or the best of those in a file's last line.

    Raises:
        ValueError: if it is neither.
    """
    path = Path(measured)
    if not path.exists():
        return float(measured)
    document = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    return max(float(row["rtfx"]) for row in document["rows"])


if __name__ == "__main__":
    main()
