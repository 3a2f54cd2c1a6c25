"""The Dockerfile copies all of the package, and the image, built and run, does what the README says."""

import configparser
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def copied() -> set[str]:
    """What the Dockerfile takes of the repository, by its first folder."""
    lines = re.findall(r"^COPY ((?:[^-\s]\S* )+)\S+$", DOCKERFILE, re.MULTILINE)
    return {name.split("/")[0] for line in lines for name in line.split()}


def module(name: str):
    """A program of the folder docker, as a module."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "docker" / f"{name}.py")
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded


def test_every_package_is_in_it():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert {*wheel["packages"], *wheel["force-include"]} <= copied()


def test_what_is_copied_is_not_ignored_and_nothing_else_is_sent():
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(allowed) == copied()


def test_versions_are_those_of_the_project():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (torch,) = re.findall(r"^TORCH_VERSION \?= (\S+)$", makefile, re.MULTILINE)

    assert re.findall(r"^ARG TORCH_VERSION=(\S+)$", DOCKERFILE, re.MULTILINE) == [torch]
    assert re.findall(r"^ARG VERSION=(\S+)$", DOCKERFILE, re.MULTILINE) == [PROJECT["project"]["version"]]


def hashed(name: str) -> dict[str, tuple[str, int]]:
    """The packages of a file of hashes, with their version and number of hashes."""
    text = (ROOT / "docker" / "hashes" / name).read_text(encoding="utf-8")
    entries = re.findall(r"^([\w.-]+)==(\S+)(.*(?:\n    .*)*)", text, re.MULTILINE)
    return {canonicalize_name(package): (version, rest.count("--hash=sha256:")) for package, version, rest in entries}


def test_pip_installs_what_has_a_known_hash_and_builds_nothing_with_more():
    commands = re.findall(r"bin/pip .*(?:\n    .*)*", DOCKERFILE + (ROOT / "docker" / "install-torch").read_text())

    assert len(commands) == 5
    for command in commands:
        is_ours = "--no-index" in command  # our own wheel, built and installed
        assert is_ours != ("--only-binary :all:" in command and "--require-hashes" in command), command


def test_all_that_the_service_needs_has_hashes_of_the_pinned_versions():
    """After a change of pyproject.toml or constraints.txt: `make hashes`."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    (torch,) = re.findall(r"^ARG TORCH_VERSION=(\S+)$", DOCKERFILE, re.MULTILINE)
    needed: dict[str, Distribution] = {}
    required("steno", ("serve",), needed)
    packages = hashed("packages.txt")

    assert {name for name in needed if not is_of_cuda(name)} - {"steno", "torch"} <= set(packages)
    assert {name: version for name, (version, _) in packages.items() if version != pins.get(name, version)} == {}
    assert {name for name, (version, hashes) in packages.items() if not hashes} == set()
    assert hashed("torch.txt")["torch"][0] == torch
    assert all(is_of_cuda(name) for name in hashed("cuda.txt"))
    assert set(hashed("build.txt")) >= {"hatchling", "packaging", "pluggy"}


def test_digests_are_added_behind_the_images_of_others_and_renewed():
    digests = module("digests")
    text = (
        "ARG BASE_IMAGE=python:3.11-slim\n    image: steno:cpu\n    image: a.example/b/c:1.2@sha256:" + "0" * 64 + "\n"
    )

    written = digests.with_digests(text, lambda image: f"sha256:{len(image):064x}")

    assert written == (
        f"ARG BASE_IMAGE=python:3.11-slim@sha256:{16:064x}\n    image: steno:cpu\n"
        f"    image: a.example/b/c:1.2@sha256:{17:064x}\n"
    )
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert digests.with_digests(DOCKERFILE + compose, lambda _: "sha256:x").count("@sha256:x") == 4


def test_pruning_takes_tests_and_leaves_what_is_read(tmp_path):
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    read = [packages / "torch" / "testing" / "_internal" / "common_dtype.py", packages / "numpy" / "core.py"]
    unread = [
        packages / "torch" / "testing" / "_internal" / "common_cuda.py",
        packages / "numpy" / "fft" / "tests" / "test_fft.py",
    ]
    header = tmp_path / "torch" / "torch" / "include" / "c10.h"
    for path in (*read, *unread, header):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")

    prune = [sys.executable, ROOT / "docker" / "prune.py", tmp_path / "venv", tmp_path / "torch"]
    subprocess.run(prune, capture_output=True, check=True)

    assert all(path.exists() for path in read)
    assert not any(path.exists() for path in (*unread, header))


def required(name: str, extras: tuple[str, ...], found: dict[str, Distribution]) -> None:
    """Collect the packages that a package brings with it, by their names."""
    name = canonicalize_name(name)
    if name in found:
        return
    found[name] = distribution(name)
    for requirement in map(Requirement, found[name].requires or ()):
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        )
        if wanted:
            required(requirement.name, tuple(requirement.extras), found)


def test_the_licence_of_every_package_is_listed():
    contents = module("contents")
    found: dict[str, Distribution] = {}
    required("steno", ("serve",), found)
    rows = re.findall(r"^\| (.+) \| (.+) \|$", (ROOT / "docs" / "licenses.md").read_text(), re.MULTILINE)
    listed = {(name, licence) for licence, names in rows for name in names.split(", ")}

    # A build of PyTorch for CUDA brings NVIDIA's packages and Triton.
    assert {(name, contents.licence(one)) for name, one in found.items() if not is_of_cuda(name)} <= listed


def is_of_cuda(name: str) -> bool:
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


def test_contents_lists_packages_and_libraries_with_their_licences(tmp_path):
    packages = tmp_path / "opt" / "steno" / "lib" / "python3.11" / "site-packages"
    for path, text in {
        packages / "Some_Thing-1.2.dist-info" / "METADATA": "Metadata-Version: 2.4\nName: Some_Thing\nVersion: 1.2\n"
        "Classifier: License :: OSI Approved :: MIT License\n",
        packages / "av.libs" / "libx265-f5385bb8.so.216": "",
        packages / "av.libs" / "libavutil-5809ad29.so.60.26": "\0FFmpeg version 8.1.2\0",
        packages
        / "_soundfile_data"
        / "libsndfile_x86_64.so": "\0libsndfile-1.2.2\0Xiph.Org libVorbis 1.3.7\0Ogg : hole\0",
        packages / "av.libs" / "libnew-f5385bb8-01234567.so.1": "",
        tmp_path
        / "var"
        / "lib"
        / "dpkg"
        / "status": "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    done = subprocess.run(
        [sys.executable, ROOT / "docker" / "contents.py", tmp_path], capture_output=True, text=True, check=True
    )

    parts = {
        part["purl"]: (part["version"], [each["license"]["name"] for each in part.get("licenses", [])])
        for part in json.loads(done.stdout)["components"]
    }
    assert parts == {
        "pkg:deb/debian/libc6@2.36-9": ("2.36-9", []),
        "pkg:pypi/some-thing@1.2": ("1.2", ["MIT License"]),
        "pkg:generic/libx265": ("216", ["GPL-2.0-or-later"]),
        "pkg:generic/libnew": ("1", []),
        "pkg:generic/libavutil": ("60.26", ["GPL-3.0-or-later"]),
        "pkg:generic/ffmpeg@8.1.2": ("8.1.2", ["GPL-3.0-or-later"]),
        "pkg:generic/libsndfile": ("", ["LGPL-2.1-or-later"]),
        "pkg:generic/libsndfile@1.2.2": ("1.2.2", ["LGPL-2.1-or-later"]),
        "pkg:generic/libvorbis@1.3.7": ("1.3.7", ["BSD-3-Clause"]),
        "pkg:generic/libogg": ("", ["BSD-3-Clause"]),
    }


def test_the_change_log_knows_this_version():
    assert PROJECT["project"]["version"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_the_user_of_an_image_can_write_is_found_by_modes(tmp_path):
    tmp_path.chmod(0o755)
    for name, mode in {"mine": 0o644, "open file": 0o666, "shared": 0o1777, "open": 0o777}.items():
        path = tmp_path / name
        path.touch() if "file" in name or name == "mine" else path.mkdir()
        path.chmod(mode)
    image_test = module("image_test")
    owner, other = str(os.getuid()), str(os.getuid() + 10_001)

    assert image_test.writable(tmp_path, other, other) == {"/open file", "/open"}
    assert image_test.writable(tmp_path, owner, other) == {"/", "/mine", "/open file", "/open"}


def test_the_build_gets_the_hosts_configuration_of_pip_and_not_the_folder_that_it_lies_in(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    host, mirror = tmp_path / "etc", tmp_path / "mirror"
    host.mkdir()
    mirror.mkdir()
    (host / "ca.pem").touch()
    (host / "pip.conf").write_text(f"[global]\ntimeout = 5\ncert = {host / 'ca.pem'}\n[install]\nprogress-bar = off\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(host / "pip.conf"))
    monkeypatch.setenv("PIP_TIMEOUT", "60")
    monkeypatch.setenv("PIP_FIND_LINKS", str(mirror))

    mounts = module("image_test").Buildah(tmp_path / "work", "vfs").pip_mounts()

    config, read = tmp_path / "work" / "pip.conf", configparser.RawConfigParser()
    assert mounts == [
        f"{config}:/etc/pip.conf:ro",
        f"{host}/ca.pem:{host}/ca.pem:ro",
        f"{mirror}:{mirror}:ro",
    ]
    assert read.read(config) == [str(config)]
    assert (read["global"]["timeout"], read["install"]["progress-bar"]) == ("60", "off")


@pytest.mark.long
@pytest.mark.program("buildah")
@pytest.mark.program("bwrap")
@pytest.mark.program("mmdebstrap")
def test_the_image_does_what_the_readme_says():
    if os.geteuid():
        pytest.skip("buildah's chroot needs root")
    work = os.environ.get("IMAGE_WORK", ROOT / "runs" / "image")
    # Without them, where pip's own index has the CUDA build alone, the image is too large.
    arguments = [f"--build-arg={name}={os.environ.get(name, '')}" for name in ("TORCH_INDEX", "TORCH_HASH")]

    done = subprocess.run(
        [sys.executable, ROOT / "docker" / "image_test.py", "--work", work, *arguments], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
