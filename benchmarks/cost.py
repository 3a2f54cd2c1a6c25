"""The cost of a million hours of audio, from a machine's price per hour and its measured RTFx.

`python -m benchmarks cost "2 cores" 0.08 cpu.json H200 5.00 gpu.json`: for each machine a name, a price, and its RTFx
or a file whose last line is the JSON of `offline`, of which the best row counts. The last column is cost / first cost.
"""

import argparse
import json
import math
from pathlib import Path

HOURS = 1_000_000


def cost(price: float, rtfx: float) -> float:
    """Return the cost of a million hours of audio, in the currency of a machine's price per hour."""
    return price * HOURS / rtfx


def main() -> None:
    """Parse, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="NAME PRICE RTFX", help="three arguments for each machine")
    args = parser.parse_args()
    if len(args.rows) % 3:
        parser.error("a machine is a name, a price per hour, and an RTFx or a file")

    triples = zip(args.rows[::3], args.rows[1::3], args.rows[2::3], strict=True)
    try:
        machines = [
            (name, _positive(price, "a price must be a number"), rtfx_of(file)) for name, price, file in triples
        ]
    except ValueError as error:
        parser.error(str(error))
    print(f"{'':24} {'an hour':>10} {'RTFx':>10} {'1e6 hours':>12} {'of the first':>13}")
    for name, price, rtfx in machines:
        share = cost(price, rtfx) / cost(*machines[0][1:])
        print(f"{name:24} {price:10.3f} {rtfx:10.1f} {cost(price, rtfx):12.0f} {share:13.3f}")
    rows = [{"name": name, "price": price, "rtfx": rtfx, "cost": cost(price, rtfx)} for name, price, rtfx in machines]
    print(json.dumps({"benchmark": "cost", "rows": rows}))


def rtfx_of(measured: str) -> float:
    """Return ``measured`` as a number, or the best RTFx in the last line of the file that it names.

    Raises:
        ValueError: if it is no number above 0, and no file with such a line.
    """
    path = Path(measured)
    if not path.exists():
        return _positive(measured, "an RTFx must be a file or a number")
    try:
        document = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        return max(float(row["rtfx"]) for row in document["rows"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"the last line of {measured} is not the JSON of `offline`") from error


def _positive(text: str, rule: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{rule} above 0, and not {text!r}")
    return number


if __name__ == "__main__":
    main()
