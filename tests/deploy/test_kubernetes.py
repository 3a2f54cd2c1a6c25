"""Each overlay renders, into resources that their schemas allow and that fit the service."""

import json
import shutil
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml

from service.engine import supervisor
from service.engine.devices import engine_devices
from service.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
VERSION = "1.33"
CUSTOM = ("PrometheusRule", "ScaledObject", "ServiceMonitor")
LABEL = {"app.kubernetes.io/name": "steno"}

DEPLOYMENT = yaml.safe_load((FOLDER / "base" / "deployment.yaml").read_text(encoding="utf-8"))
POD = DEPLOYMENT["spec"]["template"]["spec"]


def test_the_alerts_are_those_of_compose():
    resource = yaml.safe_load((FOLDER / "components" / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "steno.rules.yml").read_text(encoding="utf-8"))

    assert resource["spec"] == rules


def test_there_is_time_to_drain():
    (container,) = POD["containers"]
    before = float(container["lifecycle"]["preStop"]["exec"]["command"][1])

    assert POD["terminationGracePeriodSeconds"] > before + Settings.model_fields["drain_seconds"].default


def test_a_pod_has_longer_to_start_than_an_engine_has_to_load_a_model():
    (container,) = POD["containers"]
    probe = container["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] > supervisor._LOAD_SECONDS


def test_temporary_files_have_the_room_that_the_service_takes():
    (volume,) = [volume for volume in POD["volumes"] if volume["name"] == "temporary"]
    fields = Settings.model_fields
    most = fields["max_stored_bytes"].default + 64_000 * fields["max_queued_audio_seconds"].default

    assert float(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) * (1 << 30) > most


@pytest.mark.parametrize("container", [*POD["containers"], *POD["initContainers"]], ids=lambda each: each["name"])
def test_it_keeps_to_the_restricted_profile(container):
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    assert not POD["automountServiceAccountToken"]
    assert not POD["enableServiceLinks"]


def test_downloads_reach_no_private_network():
    component = yaml.safe_load((FOLDER / "components" / "hub" / "kustomization.yaml").read_text(encoding="utf-8"))
    (change,) = yaml.safe_load(component["patches"][0]["patch"])
    (block,) = [to["ipBlock"] for rule in change["value"] for to in rule["to"] if "ipBlock" in to]

    closed = [ip_network(one) for one in block["except"]]
    for address in ("10.0.0.1", "100.64.0.1", "100.127.255.255", "169.254.169.254", "172.31.0.1", "192.168.0.1"):
        assert any(ip_address(address) in network for network in closed), address


def test_the_user_is_that_of_the_image():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    context = POD["securityContext"]

    assert f"\nUSER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile
    assert all(mount["mountPath"] in dockerfile for mount in POD["initContainers"][0]["volumeMounts"])


@pytest.mark.long
@pytest.mark.program("kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_renders_into_what_the_schemas_allow(overlay):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make manifests installs it")
    if not (ROOT / "tests" / "deploy" / "node_modules").is_dir():
        pytest.skip("make manifests installs the schemas of custom resources")
    rendered = subprocess.run(
        [shutil.which("kubectl"), "kustomize", FOLDER / "overlays" / overlay], capture_output=True, text=True
    )
    assert (rendered.returncode, rendered.stderr) == (0, "")
    resources = list(yaml.safe_load_all(rendered.stdout))

    for resource in resources:
        if resource["kind"] not in CUSTOM:
            kubernetes_validate.validate(resource, VERSION, strict=True)
    custom = [resource for resource in resources if resource["kind"] in CUSTOM]
    script = ROOT / "tests" / "deploy" / "custom_resources.mjs"
    checked = subprocess.run(["node", script], input=json.dumps(custom), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr

    by_kind = {resource["kind"]: resource for resource in resources}
    # An empty selector is every pod of the namespace.
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == LABEL
    assert by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == LABEL
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == LABEL
    (container,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {**by_kind["ConfigMap"]["data"], **{each["name"]: "4" for each in container.get("env", ())}}
    assert Settings(**{name.removeprefix("STENO_").lower(): value for name, value in variables.items()})
    assert len(custom) == (3 if overlay == "autoscaled" else 0)
    scaled = {"ScaledObject", "HorizontalPodAutoscaler"} & set(by_kind)
    assert ("replicas" in by_kind["Deployment"]["spec"]) != bool(scaled)
    devices = {name for name in container["resources"]["limits"] if name.startswith("nvidia.com/")}
    wanted = {"cpu": set(), "mig": {"nvidia.com/mig-1g.10gb"}}
    assert devices == wanted.get(overlay, {"nvidia.com/gpu"})


def test_a_replica_on_cpus_has_an_engine_for_each_processor_of_its_limit():
    overlay = yaml.safe_load((FOLDER / "overlays" / "cpu" / "kustomization.yaml").read_text(encoding="utf-8"))
    (container,) = yaml.safe_load(overlay["patches"][0]["patch"])["spec"]["template"]["spec"]["containers"]
    processors = container["resources"]["limits"]["cpu"]
    env = {
        each["name"]: each.get("value", processors).replace("$(PROCESSORS)", processors) for each in container["env"]
    }
    settings = Settings(device=env["STENO_DEVICE"])

    engines = engine_devices(settings.device, settings.threads, processors=int(processors), gpus=0)

    assert [(engine.threads, engine.shared_threads) for engine in engines] == [(1, int(processors))] * int(processors)
