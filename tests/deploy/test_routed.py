"""What the manifests let through from outside: the API and its pages, whatever way a path is written."""

import http.client
from urllib.parse import unquote, urlsplit

import httpx
import pytest
import yaml

from tests.deploy.fleet import CONFIGURATION, ROOT, balancing
from tests.service.serving import form, serving, tone, wav

INGRESS = ROOT / "deploy" / "kubernetes" / "components" / "ingress" / "ingress.yaml"
ADDRESS = "127.0.0.1"
# Every way from outside to what is for operators; the last ones are closed because nothing else is open.
CLOSED = ("/metrics", "/readyz", "/v1/admin/models", "/debug/batches")
DISGUISES = (
    *("/%6detrics", "/%72eadyz", "/v1/%61dmin/models", "/v1%2fadmin/models", "/v1/admin%2Fmodels", "/debug%2fbatches"),
    *("//metrics", "/./metrics", "/metrics/", "/METRICS", "/metrics?x=/web/", "/metrics#/web/", "/metrics;/web/"),
    *(
        "/%2e/metrics",
        "/web/../metrics",
        "/web/%2e%2e/metrics",
        "/v1/models/../admin/models",
        "/v1/models%2f..%2fadmin",
    ),
    *("http://web/metrics", "http://x?/web/", "/%256detrics", "/metrics%00", "/%00/metrics", "/metrics%20", "/%zz"),
    *("/v1", "/v1/", "/v1/audio", "/web", "/docs/", "/openapi.json/", "/internal"),
)
OPEN = {
    "/": 200,
    "/docs": 200,
    "/openapi.json": 200,
    "/web/style.css": 200,
    "/v1/models": 200,
    "/v1/models/stub": 200,
    "/v1/models/owner%2Fname": 404,
    "/v1/%6dodels": 200,
    "/v1/audio/transcriptions": 405,
    "/v1/audio/translations": 405,
    "/v1/audio/jobs": 403,
    "/v1/audio/jobs/one": 403,
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """Asks for a target, written as it is, through a real balancer; returns the status."""
    with (
        serving() as service,
        balancing(tmp_path_factory.mktemp("balancer"), (ADDRESS,), service.server.port) as balancer,
    ):
        balancer.wait_for_replicas(1)

        def ask(target: str) -> int:
            connection = http.client.HTTPConnection(urlsplit(balancer.url).netloc)
            try:
                connection.putrequest("GET", target, skip_accept_encoding=True)
                connection.endheaders()
                return connection.getresponse().status
            finally:
                connection.close()

        yield ask


@pytest.mark.slow
@pytest.mark.program("haproxy")
@pytest.mark.parametrize("target", [*CLOSED, *DISGUISES])
def test_no_way_of_writing_a_path_leads_to_what_is_for_operators(answered, target):
    assert answered(target) in (400, 404)


@pytest.mark.slow
@pytest.mark.program("haproxy")
@pytest.mark.parametrize("target", OPEN)
def test_the_api_and_its_pages_are_routed(answered, target):
    assert answered(target) == OPEN[target]


def _routed_by_haproxy() -> tuple[set[str], set[str]]:
    exact, prefixes = set(), set()
    for line in CONFIGURATION.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[:2] == ["acl", "routed"]:
            (exact if words[4] == "str" else prefixes).update(words[5:])
    return exact, prefixes


def test_ingress_and_balancer_route_the_same_paths():
    exact, prefixes = _routed_by_haproxy()
    (rule,) = yaml.safe_load(INGRESS.read_text(encoding="utf-8"))["spec"]["rules"]
    ingress = {
        kind: {path["path"] for path in rule["http"]["paths"] if path["pathType"] == kind}
        for kind in ("Exact", "Prefix")
    }

    assert ingress["Prefix"] == {prefix.rstrip("/") for prefix in prefixes}
    assert ingress["Exact"] == exact - ingress["Prefix"]


def test_every_route_of_the_api_is_routed_and_no_other():
    exact, prefixes = _routed_by_haproxy()
    with serving() as service:
        routes = set(service.client.get("/openapi.json").json()["paths"])

    closed = {path for path in routes if unquote(path) not in exact and not path.startswith(tuple(prefixes))}

    assert closed == {"/healthz", "/readyz"}


@pytest.mark.slow
@pytest.mark.program("haproxy")
@pytest.mark.parametrize("forged", [{}, {"x-forwarded-for": "203.0.113.9"}], ids=["plain", "forged"])
def test_a_replica_knows_clients_by_the_address_that_the_balancer_sees(tmp_path, monkeypatch, forged):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # as docker-compose.yml does
    asks = {"webhook": "https://hooks.example/", "webhook_secret": "a secret of some length"}
    with (
        serving(jobs_folder=tmp_path / "jobs") as service,
        balancing(tmp_path, (ADDRESS,), service.server.port) as balancer,
        httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.7"), headers=forged) as client,
    ):
        balancer.wait_for_replicas(1)
        job = client.post(f"{balancer.url}/v1/audio/jobs", **form(wav(tone(16_000)), **asks)).json()["id"]

        assert service.server._job_store.find(job).delivery.client == "127.0.0.7"
