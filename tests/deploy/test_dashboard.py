"""Every query of the dashboard has an answer, from a Prometheus that scraped replicas at work."""

import json
import math
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from service.metrics import Metrics
from tests.deploy.fleet import ROOT, fleet, free_port
from tests.service.serving import wait_for

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "steno.json").read_text(encoding="utf-8"))
COMPOSE = ROOT / "deploy" / "compose"
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
SAMPLE = ROOT / "samples" / "austen.flac"


def test_the_dashboard_asks_the_data_source_that_compose_provides():
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasources" / "prometheus.yml").read_text())["datasources"]
    asked = {target["datasource"]["uid"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())}

    assert asked == {source["uid"]}


@pytest.mark.parametrize("expression", QUERIES.values(), ids=QUERIES)
def test_every_metric_that_is_shown_is_exported(expression):
    exported = {family.name for family in Metrics().registry.collect()}
    asked = set(re.findall(r"\bsteno_\w+", expression))

    assert {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in asked} <= exported


def test_panels_do_not_cover_each_other():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@contextmanager
def prometheus(folder: Path, replicas: list[str], balancer: str):
    """Debian's Prometheus with compose's configuration, but every second, and told where the targets are."""
    configuration = yaml.safe_load((COMPOSE / "prometheus.yml").read_text(encoding="utf-8"))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(ROOT / "deploy" / "prometheus" / "*.rules.yml")]
    for job, targets in zip(configuration["scrape_configs"], (replicas, [balancer]), strict=True):
        job.pop("dns_sd_configs", None)
        job["static_configs"] = [{"targets": targets}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'series'}",
                f"--web.listen-address={address}",
            ],
            stderr=log,
            env=os.environ | {"NO_PROXY": "*"},
        )
    try:
        with httpx.Client(base_url=f"http://{address}/api/v1", trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def answered(client: httpx.Client, expression: str) -> bool:
    """Whether a query has a series with a number."""
    for name, value in {"__rate_interval": "20s", "instance": ".*", "price": "1"}.items():
        expression = expression.replace(f"${name}", value)
    try:
        answer = client.get("/query", params={"query": expression}).json()
    except httpx.TransportError:
        return False
    assert answer["status"] == "success", answer
    return any(math.isfinite(float(series["value"][1])) for series in answer["data"]["result"])


@pytest.mark.long
@pytest.mark.program("haproxy")
@pytest.mark.program("prometheus")
def test_every_query_has_an_answer(tmp_path):
    first, second = "127.0.0.31", "127.0.0.32"
    upload = SAMPLE.read_bytes()
    with (
        fleet(tmp_path, first, second) as served,
        prometheus(
            tmp_path,
            [f"{address}:{served.port}" for address in (first, second)],
            served.metrics_url.removeprefix("http://").removesuffix("/metrics"),
        ) as client,
        httpx.Client(base_url=served.url, trust_env=False, timeout=60) as api,
    ):
        unanswered = dict(QUERIES)

        def all_are_answered() -> bool:
            for _ in range(4):
                api.post("/v1/audio/transcriptions", files={"file": upload}, data={"model": "whisper-1"})
            api.post("/v1/audio/transcriptions", files={"file": b"nothing"}, data={"model": "whisper-1"})
            for title in [title for title, expression in unanswered.items() if answered(client, expression)]:
                del unanswered[title]
            return not unanswered

        try:
            wait_for(all_are_answered)
        except AssertionError:
            pytest.fail(f"no answer to {unanswered}")
        alerts = client.get("/alerts").json()["data"]["alerts"]

    assert [alert for alert in alerts if alert["state"] == "firing" and alert["labels"]["severity"] == "page"] == []
