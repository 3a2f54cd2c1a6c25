"""Values of the dashboard's panels, from a Prometheus that scrapes the service.

`docker compose up` has one: `python -m benchmarks dashboard http://localhost:9090 --minutes 30`. The last line is JSON.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

DASHBOARD = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "steno.json"
_POINTS = 120


def main() -> None:
    """Parse, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus", metavar="URL", help="of Prometheus")
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the time range, which ends now")
    parser.add_argument("--rate-interval", default="1m", help="four times the scrape interval (default: %(default)s)")
    parser.add_argument("--price", default="1", help="price of a replica's hour")
    args = parser.parse_args()

    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    variables = {"__rate_interval": args.rate_interval, "instance": ".*", "price": args.price}
    end = time.time()
    times = [end - 60 * args.minutes * (1 - point / (_POINTS - 1)) for point in range(_POINTS)]
    with httpx.Client(base_url=f"{args.prometheus.rstrip('/')}/api/v1", trust_env=False, timeout=60) as client:
        panels = [_panel(client, panel, variables, times) for panel in dashboard["panels"]]
    for panel in panels:
        shown = ", ".join(f"{series['name'] or 'value'} {_last(series)}" for series in panel["series"])
        print(f"{panel['title']:40} {shown}" if panel["type"] != "row" else f"\n{panel['title']}")
    print(json.dumps({"benchmark": "dashboard", "minutes": args.minutes, "points": _POINTS, "panels": panels}))


def _panel(
    client: httpx.Client, panel: Mapping[str, Any], variables: Mapping[str, str], times: list[float]
) -> dict[str, Any]:
    series = [drawn for target in panel.get("targets", ()) for drawn in _series(client, target, variables, times)]
    place = panel["gridPos"]
    return {
        "title": panel["title"],
        "type": panel["type"],
        "unit": panel.get("fieldConfig", {}).get("defaults", {}).get("unit"),
        "place": [place[name] for name in ("x", "y", "w", "h")],
        "series": series,
    }


def _series(
    client: httpx.Client, target: Mapping[str, Any], variables: Mapping[str, str], times: list[float]
) -> list[dict[str, Any]]:
    expression = target["expr"]
    for name, value in variables.items():
        expression = expression.replace(f"${name}", value)
    step = times[1] - times[0]
    asked = {"query": expression, "start": times[0], "end": times[-1], "step": step}
    answer = client.get("/query_range", params=asked).raise_for_status().json()
    drawn = []
    for found in answer["data"]["result"]:
        values: list[float | None] = [None] * len(times)
        for moment, value in found["values"]:
            number = float(value)
            values[round((moment - times[0]) / step)] = float(f"{number:.4g}") if math.isfinite(number) else None
        name = _named(target, found["metric"])
        if any(value is not None for value in values):
            drawn.append({"name": name, "values": values})
    return drawn


def _named(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    if target.get("format") == "table":
        return ", ".join(f"{key} {labels[key]}" for key in sorted(labels) if not key.startswith("__"))
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), target.get("legendFormat") or "")


def _last(series: Mapping[str, Any]) -> str:
    return f"{[value for value in series['values'] if value is not None][-1]:.4g}"


if __name__ == "__main__":
    main()
