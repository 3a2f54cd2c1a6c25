"""docker-compose.yml follows the schema of the compose specification, and the files that it names exist."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FILE = ROOT / "docker-compose.yml"
SERVICES = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]


def test_the_schema_of_the_specification_allows_it():
    script = Path(sys.executable).with_name("check-jsonschema")

    done = subprocess.run([script, "--builtin-schema", "vendor.compose-spec", FILE], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(name):
    for mount in SERVICES[name]["volumes"]:
        source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", mount).split(":")[0]
        assert not source.startswith(".") or (ROOT / source).exists(), source


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_runs_with_more_rights_than_it_needs(name):
    service = SERVICES[name]

    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"pids_limit", "mem_limit", "cpus"} <= set(service)


@pytest.mark.parametrize("name", ["steno", "steno-gpu"])
def test_a_replica_may_finish_what_it_accepted(name):
    from service.settings import Settings

    grace = float(SERVICES[name]["stop_grace_period"].removesuffix("s"))

    assert grace > Settings.model_fields["drain_seconds"].default


def test_the_balancer_waits_for_as_long_as_an_answer_may_take():
    from service.settings import Settings

    text = (ROOT / "deploy" / "compose" / "haproxy.cfg").read_text(encoding="utf-8")
    timeouts = {name: float(seconds) for name, seconds in re.findall(r"timeout (\S+) (\d+)s", text)}
    default = {name: field.default for name, field in Settings.model_fields.items()}

    assert timeouts["server"] > default["request_timeout_seconds"] + default["max_audio_seconds"]
    assert timeouts["client"] > default["receive_timeout_seconds"]
    assert timeouts["http-keep-alive"] < default["keep_alive_seconds"]


@pytest.mark.long
@pytest.mark.program("haproxy")
def test_haproxy_understands_its_file():
    subprocess.run([shutil.which("haproxy"), "-c", "-f", ROOT / "deploy" / "compose" / "haproxy.cfg"], check=True)
