"""Print the packages in a root filesystem as CycloneDX 1.5: `contents.py ROOT`.

These are Debian's packages, Python's, and libraries inside of Python's, with the licences that they state; libraries in
wheels state none, and have those of LIBRARIES. docs/licenses.md says what follows from them. Libraries that are linked
into one of those files are listed by what the file says of itself, so that who looks for a faulty version finds it.
"""

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
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
    "ffmpeg": _FFMPEG,
    "flac": "BSD-3-Clause",
    "libogg": "BSD-3-Clause",
    "libvorbis": "BSD-3-Clause",
    "opus": "BSD-3-Clause",
    "mpg123": "LGPL-2.1-or-later",
    "lame": "LGPL-2.0-or-later",
}
# Projects whose parsers read what strangers send: the file that contains one, its name, and what its version stands in.
INSIDE_OF_FILES = (
    ("libavutil*", "ffmpeg", rb"FFmpeg version n?([0-9.]+)"),
    ("libsndfile*", "libsndfile", rb"libsndfile-([0-9.]+)"),
    ("libsndfile*", "libvorbis", rb"Xiph\.Org libVorbis ([0-9.]+)"),
    ("libsndfile*", "flac", rb"reference libFLAC ([0-9.]+)"),
    ("libsndfile*", "opus", rb"libopus ([0-9.]+)"),
    ("libsndfile*", "libogg", rb"(?:Ogg : )()"),
    ("libsndfile*", "mpg123", rb"mpg123[ -]([0-9.]+)|Xing/Lame/Info()"),
    ("libsndfile*", "lame", rb"LAME([0-9.]{4,})|LAME encoder()"),
    ("libopus*", "opus", rb"libopus ([0-9.]+)"),
    ("libmp3lame*", "lame", rb"LAME([0-9.]{4,})"),
)


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
            # The version is that of its interface; only files that say more are known by a version of their project.
            yield component(name, path.name.partition(".so.")[2], f"pkg:generic/{name}", LIBRARIES.get(name))
            yield from _linked(path)


def _linked(path: Path) -> Iterator[dict]:
    """Return the projects in a file, by what it says of itself; without a version where it says none."""
    content = None
    for pattern, name, stated in INSIDE_OF_FILES:
        if fnmatch(path.name, pattern):
            content = content or path.read_bytes()
            if found := re.search(stated, content):
                version = next(filter(None, found.groups()), b"").decode().rstrip(".")
                package = f"pkg:generic/{name}" + (f"@{version}" if version else "")
                yield component(name, version, package, LIBRARIES[name], path.name)


def debian_packages(root: Path) -> Iterator[dict]:
    """Return Debian's packages; their licences lie in /usr/share/doc."""
    for entry in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", entry, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            yield component(name, version, f"pkg:deb/debian/{name}@{version}", None)


def component(name: str, version: str, package: str, license_: str | None, file: str | None = None) -> dict:
    """Return an entry of the list; `file` is the one that the library is a part of."""
    entry: dict = {"type": "library", "name": name, "version": version, "purl": package}
    entry["bom-ref"] = f"{package}#{file or version}" if package.startswith("pkg:generic/") else package
    if file:
        entry["evidence"] = {"occurrences": [{"location": file}]}
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
