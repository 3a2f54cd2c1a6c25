"""Print the packages in a root filesystem as CycloneDX 1.5: `contents.py ROOT`.

These are Debian's packages, Python's, and libraries inside of Python's, with the licences that they state; libraries in
wheels state none, and have those of LIBRARIES. docs/licenses.md says what follows from them.
"""

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

PACKAGES = ("opt/steno/lib/python3*/site-packages", "opt/torch", "opt/application")
# Paths of libraries inside of wheels.
INSIDE = ("*.libs/*.so*", "_soundfile_data/*.so*", "torch/lib/libgomp*.so*")

# FFmpeg built with parts under the GPL is under the GPL as a whole, whatever it states.
_FFMPEG = "GPL-3.0-or-later"
LIBRARIES = {
    "libavcodec": _FFMPEG,
    "libavdevice": _FFMPEG,
    "libavfilter": _FFMPEG,
    "libavformat": _FFMPEG,
    "libavutil": _FFMPEG,
    "libswresample": _FFMPEG,
    "libswscale": _FFMPEG,
    "libx264": "GPL-2.0-or-later",
    "libx265": "GPL-2.0-or-later",
    "libmp3lame": "LGPL-2.0-or-later",
    "libsndfile": "LGPL-2.1-or-later",
    "libgmp": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libhogweed": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libnettle": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libunistring": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libgnutls": "LGPL-2.1-or-later",
    "libasound": "LGPL-2.1-or-later",
    "libopencore-amrnb": "Apache-2.0",
    "libopencore-amrwb": "Apache-2.0",
    "libopus": "BSD-3-Clause",
    "libvpx": "BSD-3-Clause",
    "libwebp": "BSD-3-Clause",
    "libwebpmux": "BSD-3-Clause",
    "libsharpyuv": "BSD-3-Clause",
    "libdav1d": "BSD-2-Clause",
    "libSvtAv1Enc": "BSD-3-Clause-Clear",
    "libvpl": "MIT",
    "libdrm": "MIT",
    "libgomp": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgfortran": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libquadmath": "LGPL-2.1-or-later",
    "libscipy_openblas64_": "BSD-3-Clause",
}


def licence(distribution: Distribution) -> str:
    """Return the licence that a package states, in one line."""
    metadata = distribution.metadata
    stated = metadata.get("License-Expression") or (metadata.get("License") or "").strip().split("\n")[0]
    classified = [
        line.rsplit(" :: ", 1)[1] for line in metadata.get_all("Classifier") or () if line.startswith("License :: ")
    ]
    return stated if stated and len(stated) < 120 else ", ".join(classified) or "not stated"


def python_packages(root: Path) -> Iterator[dict]:
    """Return Python's packages and the libraries in their wheels."""
    folders = [str(folder) for pattern in PACKAGES for folder in root.glob(pattern)]
    for distribution in distributions(path=folders):
        name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        yield component(name, distribution.version, f"pkg:pypi/{name}@{distribution.version}", licence(distribution))
    for folder in folders:
        for path in sorted(path for pattern in INSIDE for path in Path(folder).glob(pattern)):
            name = re.sub(r"(-[0-9a-f]{8})*(_x86_64|_arm64)?\.so.*", "", path.name)
            yield component(name, path.name.partition(".so.")[2], None, LIBRARIES.get(name))


def debian_packages(root: Path) -> Iterator[dict]:
    """Return Debian's packages; their licences lie in /usr/share/doc."""
    for entry in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", entry, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            yield component(name, version, f"pkg:deb/debian/{name}@{version}", None)


def component(name: str, version: str, package: str | None, license_: str | None) -> dict:
    """Return an entry of the list."""
    entry: dict = {"type": "library", "name": name, "version": version}
    if package:
        entry["purl"] = entry["bom-ref"] = package
    if license_:
        entry["licenses"] = [{"license": {"name": license_}}]
    return entry


def main() -> None:
    """Print the list."""
    root = Path(sys.argv[1])
    components = [*debian_packages(root), *python_packages(root)]
    print(
        json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}, indent=1)
    )


if __name__ == "__main__":
    main()
