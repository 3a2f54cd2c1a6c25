"""Name images by their digests: `digests.py ENGINE FILE...` asks the registries by the engine, `docker` or `podman`.

`image: haproxy:2.6` becomes `image: haproxy:2.6@sha256:...`, and a digest that is there is replaced. A tag may be moved
to another image; a digest cannot.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Images of others: those that the Dockerfile begins with and compose runs, but not our own, which have no registry.
_IMAGE = re.compile(
    r"((?:^ARG BASE_IMAGE=|^ *image: )(?!steno:)([\w./-]+:[\w.-]+))(?:@sha256:[0-9a-f]{64})?$", re.MULTILINE
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def with_digests(text: str, digest: Callable[[str], str]) -> str:
    """Return a file's text with the digest behind each image."""
    return _IMAGE.sub(lambda found: f"{found[1]}@{digest(found[2])}", text)


def _asked(engine: str, image: str) -> str:
    if Path(engine).name == "podman":
        subprocess.run([engine, "pull", "--quiet", image], check=True, stdout=subprocess.DEVNULL)
        command = [engine, "image", "inspect", "--format", "{{.Digest}}", image]
    else:  # the digest of the list of all platforms
        command = [engine, "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if not _DIGEST.fullmatch(answer):
        raise SystemExit(f"{engine} knows no digest of {image}: {answer!r}")
    return answer


def main() -> None:
    """Write the files, once all digests are known."""
    engine, *paths = sys.argv[1:]
    texts = {Path(path): Path(path).read_text(encoding="utf-8") for path in paths}
    written = {path: with_digests(text, lambda image: _asked(engine, image)) for path, text in texts.items()}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
