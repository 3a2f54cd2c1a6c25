"""Build the image without a container engine and run it as an engine would (`make image-test`).

Needs root and Debian's buildah, bubblewrap and mmdebstrap. The image is built in a chroot, on a slim base by mmdebstrap
(or on `--base IMAGE`), and its entry point runs in the built root filesystem: read-only, as the image's user, without
capabilities, with a folder for each volume, as process 1. The test sends the README's requests, sends SIGTERM during a
long recording, and searches the image for unwanted files. Prints the size of each layer; on a failure, ends with 1.
"""

import argparse
import configparser
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples" / "austen.flac"
MOST_BYTES = 1_200_000_000  # of the cpu variant
_READY_SECONDS = 120
_LONG_REPEATS = 80  # of the sample: some ten minutes of audio, seconds of work on a CPU

# Folders that slim images leave out.
_SLIM = ("doc", "man", "info", "locale", "lintian", "linda")
# Unwanted in an image: installers except the base image's own, tests, static libraries, caches, the build's folder.
_UNWANTED = ("opt/**/pip", "opt/**/tests", "opt/**/test", "opt/**/*.a", "root/.cache", "build")
_COMPILERS = ("usr/bin/gcc*", "usr/bin/cc")  # unwanted too, except in the cuda variant, where Triton needs one


class Buildah:
    """buildah with its own storage folder."""

    def __init__(self, work: Path, driver: str) -> None:
        self.work = work
        work.mkdir(parents=True, exist_ok=True)
        config = work / "storage.conf"
        config.write_text(
            f'[storage]\ndriver="{driver}"\ngraphroot="{work}/storage-{driver}"\nrunroot="{work}/run-{driver}"\n'
        )
        self._environment = os.environ | {"CONTAINERS_STORAGE_CONF": str(config), "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *arguments: str, show: bool = False) -> str:
        """Run buildah, and return its output."""
        done = subprocess.run(
            ["buildah", *arguments],
            check=False,
            env=self._environment,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"buildah {' '.join(arguments[:1])} failed\n{done.stderr or ''}")
        return (done.stdout or "").strip()

    def base(self) -> str:
        """Return the name of an image with Debian and Python; it is made at the first call."""
        name, archive = "localhost/steno-base", self.work / "base.tar"
        if not archive.exists():
            excluded = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _SLIM]
            sources = sorted(map(str, Path("/etc/apt/sources.list.d").glob("debian*.sources")))
            excluded.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
            partial = archive.with_suffix(".partial.tar")
            subprocess.run(
                [
                    *("mmdebstrap", "--mode=root", "--variant=minbase"),
                    "--include=ca-certificates,python3,python3-venv",
                    *(*excluded, "bookworm", str(partial), *sources),
                ],
                check=True,
            )
            partial.rename(archive)
            with contextlib.suppress(SystemExit):
                self("rmi", name)
        if not self("images", "--quiet", "--filter", f"reference={name}"):
            container = self("from", "scratch")
            self("add", container, str(archive), "/")
            self("commit", "--rm", container, name)
        return name

    def build(self, base: str, tag: str, variant: str, arguments: list[str]) -> None:
        """Build the Dockerfile; pip gets the host's PIP_ variables, and the files and folders that they name."""
        self(
            *("bud", "--layers", "--format", "docker", "--network", "host", "--tag", tag),
            *("--build-arg", f"BASE_IMAGE={base}", "--build-arg", f"VARIANT={variant}"),
            *(f"--volume={mount}" for mount in self.pip_mounts()),
            *arguments,
            str(ROOT),
            show=True,
        )

    def pip_mounts(self) -> list[str]:
        """Return the mounts of the host's configuration of pip, in one file, and of the paths that it names."""
        variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        config = configparser.RawConfigParser()
        # Its content is taken over: where it lies, such as in /etc, the build has files of its own.
        config.read(variables.pop("PIP_CONFIG_FILE", os.devnull), encoding="utf-8")
        config.read_dict({"global": {name[4:].lower().replace("_", "-"): value for name, value in variables.items()}})
        path = self.work / "pip.conf"
        with path.open("w", encoding="utf-8") as file:
            config.write(file)
        values = {value for section in config.sections() for value in config[section].values()}
        named = sorted(value for value in values if value.startswith("/") and Path(value).exists())
        return [f"{path}:/etc/pip.conf:ro", *(f"{one}:{one}:ro" for one in named)]

    @contextlib.contextmanager
    def mounted(self, tag: str) -> Iterator[Path]:
        """Mount the root filesystem of an image."""
        container = self("from", tag)
        try:
            yield Path(self("mount", container))
        finally:
            self("umount", container)
            self("rm", container)


@dataclass(frozen=True)
class Container:
    """A root filesystem and its image's configuration, run by bubblewrap."""

    root: Path
    config: dict
    volumes: Path

    def command(self, arguments: list[str], environment: dict[str, str], info: int | None = None) -> list[str]:
        """Return the command line that runs `arguments` in the container."""
        user, group = self.config["User"].split(":")
        variables = dict(entry.split("=", 1) for entry in self.config["Env"]) | environment
        mounts = []
        for number, volume in enumerate(sorted(self.config["Volumes"])):
            folder = self.volumes / str(number)
            if not folder.exists():
                folder.mkdir(parents=True)
                inside = self.root / volume.strip("/")
                shutil.chown(folder, inside.stat().st_uid, inside.stat().st_gid)
                folder.chmod(inside.stat().st_mode & 0o7777)
            mounts += ["--bind", str(folder), volume]
        return [
            *("bwrap", "--ro-bind", str(self.root), "/", "--dev", "/dev", "--proc", "/proc", *mounts),
            *("--unshare-pid", "--unshare-ipc", "--as-pid-1", "--die-with-parent", "--new-session", "--clearenv"),
            *(() if info is None else ("--info-fd", str(info))),
            *(word for name, value in variables.items() for word in ("--setenv", name, value)),
            *("--chdir", self.config["WorkingDir"], "setpriv", "--reuid", user, "--regid", group, "--clear-groups"),
            *("--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"),
            *arguments,
        ]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Run a command to its end."""
        command = self.command([*arguments], environment)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @contextlib.contextmanager
    def service(self, log: Path, **environment: str) -> Iterator[tuple[subprocess.Popen, int, int]]:
        """Run the image's own command; yield bubblewrap's process, the host's id of process 1, and the port."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        read, write = os.pipe()
        command = [*self.config["Entrypoint"], *self.config["Cmd"]]
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command(command, {"STENO_PORT": str(port)} | environment, write), stderr=output, pass_fds=[write]
            )
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as pipe:
            first = json.load(pipe)["child-pid"]
        try:
            wait_until_ready(process, port)
            yield process, first, port
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen, port: int) -> None:
    """Poll /readyz until it answers with success."""
    tick = threading.Event()
    for _ in range(_READY_SECONDS * 10):
        if process.poll() is not None:
            raise AssertionError(f"the service ended with {process.returncode} before it was ready")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
            return
        tick.wait(0.1)
    raise AssertionError(f"the service was not ready after {_READY_SECONDS} s")


def layers(buildah: Buildah, tag: str) -> list[tuple[int, str]]:
    """Return the unpacked bytes of each layer, and the instruction that made it."""
    archive = buildah.work / "image.tar"
    archive.unlink(missing_ok=True)
    buildah("push", tag, f"docker-archive:{archive}")
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))[0]
        history = json.load(image.extractfile(manifest["Config"]))["history"]
        sizes = [image.getmember(layer).size for layer in manifest["Layers"]]
    archive.unlink()
    made_by = [entry.get("created_by", "") for entry in history if not entry.get("empty_layer")]
    return list(zip(sizes, made_by, strict=True))


def disk_bytes(root: Path) -> int:
    """Return the bytes of the root filesystem on disk."""
    done = subprocess.run(["du", "-sx", "--block-size=1", str(root)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def writable(root: Path, user: str, group: str) -> set[str]:
    """Return the files and folders that a user owns or can write, except folders with a sticky bit, such as /var/tmp.

    By their modes: the container's root is read-only, so there a user can write nothing, whatever the image says.
    """
    kinds = ["(", "-type", "f", "-o", "-type", "d", ")"]
    may = ["(", "-user", user, "-o", "-group", group, "-perm", "-g=w", "-o", "-perm", "-o=w", ")"]
    command = ["find", str(root), "-xdev", *kinds, *may, "-not", "-perm", "-1000", "-printf", "/%P\\n"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


def readme_requests() -> list[str]:
    """Return the README's requests, as a reader types them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"<!-- runnable: request -->\n```bash\n(.*?)```", readme, re.DOTALL)


def recode(repeats: int, folder: Path) -> tuple[Path, Path]:
    """Write the sample as WebM with Opus, which a child process has to decode, and many times over as FLAC."""
    import av
    import numpy as np
    import soundfile

    samples, rate = soundfile.read(SAMPLE, dtype="float32")
    long = folder / "long.flac"
    soundfile.write(long, np.tile(samples, repeats), rate)
    webm = folder / "austen.webm"
    with av.open(SAMPLE) as source, av.open(webm, "w") as sink:
        stream = sink.add_stream("libopus", rate=48_000, layout="mono")
        for frame in source.decode(audio=0):
            sink.mux(stream.encode(frame))
        sink.mux(stream.encode(None))
    return webm, long


def ask(port: int, file: Path) -> tuple[int, dict]:
    """Post a recording with curl; return the status and the answer."""
    done = subprocess.run(
        [
            *("curl", "-sS", "-w", "\n%{http_code}", f"http://127.0.0.1:{port}/v1/audio/transcriptions"),
            *("-F", f"file=@{file}", "-F", "model=whisper-1"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    body, status = done.stdout.rsplit("\n", 1)
    return int(status), json.loads(body)


def metric(port: int, name: str) -> float:
    """Return the sum of a metric's series, 0 if it has none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}[ {{]", line))


def check_contents(container: Container, variant: str) -> None:
    """Check the files that the image has, those that its user can write, and how a wrong setting is refused."""
    unwanted = _UNWANTED if variant == "cuda" else _UNWANTED + _COMPILERS
    paths = (path.relative_to(container.root) for pattern in unwanted for path in container.root.glob(pattern))
    found = [str(path) for path in paths if ".dist-info/licenses/" not in str(path)]
    assert not found, f"in the image: {found}"
    found = writable(container.root, *container.config["User"].split(":")) - set(container.config["Volumes"])
    assert not found, f"its user can write: {found}"
    if variant == "cuda":
        program = "import sysconfig; from pathlib import Path; import triton, torch; assert torch.version.cuda;"
        headers = container.run("python", "-c", program + 'print(sysconfig.get_path("include"))')
        include = headers.stdout.strip()
        compiled = container.run("sh", "-c", f"echo '#include <Python.h>' | gcc -fsyntax-only -I{include} -x c -")
        assert (headers.returncode, compiled.returncode) == (0, 0), headers.stderr + compiled.stderr
    contents = json.loads((container.root / "usr/share/doc/steno/sbom.cdx.json").read_text(encoding="utf-8"))
    carried = {part["name"] for part in contents["components"]}
    assert {"libc6", "torch", "av", "libx265", "steno"} <= carried, sorted(carried)
    version = container.run("steno", "--version")
    assert re.fullmatch(r"steno \d+\.\d+\.\d+\S*\n", version.stdout), version
    wrong = container.run(*container.config["Entrypoint"], *container.config["Cmd"], STENO_PROT="1")
    assert wrong.returncode == 2, wrong
    assert "did you mean STENO_PORT?" in wrong.stderr, wrong.stderr


def check_answers(container: Container, folder: Path) -> None:
    """Check the process's rights, the README's requests, the health check, and a SIGTERM during a long recording."""
    webm, long = recode(_LONG_REPEATS, folder)
    said = (SAMPLE.with_suffix(".txt")).read_text(encoding="utf-8")
    words = re.sub(r"[^a-z' ]", "", said.lower())
    log = folder / "log"
    with container.service(log) as (process, first, port):
        status = Path(f"/proc/{first}/status").read_text()
        user = container.config["User"].split(":")[0]
        assert re.search(rf"^Uid:(\t{user}){{4}}$", status, re.MULTILINE), status
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
        assert re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE), status
        for script in readme_requests():
            script = script.replace("localhost:8000", f"127.0.0.1:{port}")
            environment = os.environ | {"FILE": str(SAMPLE)}
            typed = ["bash", "-euc", script]
            answer = subprocess.run(typed, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert f'"text":"{words}"' in answer.stdout, f"{script}{answer.stdout}{answer.stderr}"
        code, body = ask(port, webm)
        assert (code, body["text"]) == (200, words), body
        healthcheck = container.config["Healthcheck"]["Test"][1:]
        assert container.run(*healthcheck, STENO_PORT=str(port)).returncode == 0

        answers: list[tuple[int, dict]] = []
        asking = threading.Thread(target=lambda: answers.append(ask(port, long)))
        asking.start()
        tick = threading.Event()
        while metric(port, "steno_batch_audio_seconds_total") < 60 and asking.is_alive():
            tick.wait(0.05)
        assert asking.is_alive(), "the long recording was done before SIGTERM could come"
        os.kill(first, getattr(signal, container.config["StopSignal"]))
        while not metric(port, "steno_draining"):
            tick.wait(0.02)
        code, body = ask(port, SAMPLE)
        assert (code, body["error"]["code"]) == (503, "draining"), body
        asking.join()
        assert [status for status, _ in answers] == [200], answers
        assert len(answers[0][1]["text"].split()) > 0.9 * _LONG_REPEATS * len(words.split()), answers
        assert process.wait(60) == 0, log.read_text()
        assert container.run(*healthcheck, STENO_PORT=str(port)).returncode == 1


def main() -> int:
    """Build, measure, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "image", help="where the image is built and kept")
    parser.add_argument("--base", help="base image; by default one is made")
    parser.add_argument("--variant", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--storage-driver", choices=("overlay", "vfs"), default="overlay", help="vfs works everywhere")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("buildah's chroot and the change of user need root")
    if missing := [program for program in ("buildah", "bwrap", "mmdebstrap") if not shutil.which(program)]:
        raise SystemExit(f"not found: {', '.join(missing)}")

    buildah = Buildah(options.work.resolve(), options.storage_driver)
    tag = f"localhost/steno:{options.variant}"
    buildah.build(
        options.base or buildah.base(), tag, options.variant, [f"--build-arg={one}" for one in options.build_arg]
    )
    config = json.loads(buildah("inspect", "--type", "image", tag))["Docker"]["config"]
    with buildah.mounted(tag) as root, tempfile.TemporaryDirectory() as scratch:
        taken = disk_bytes(root)
        for size, made_by in layers(buildah, tag):
            print(f"{size / 1e6:8.1f} MB  {made_by[:100]}")
        print(f"{taken / 1e6:8.1f} MB  on disk")
        container = Container(root, config, Path(scratch) / "volumes")
        try:
            if options.variant == "cpu":
                assert taken < MOST_BYTES, f"{taken} bytes"
            check_contents(container, options.variant)
            check_answers(container, Path(scratch))
        except (AssertionError, http.client.HTTPException, subprocess.SubprocessError, OSError) as error:
            print(f"image_test: {error}", file=sys.stderr)
            return 1
    print("the image does what it should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
