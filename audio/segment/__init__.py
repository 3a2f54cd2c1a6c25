"""Cutting a long recording into utterances: voice activity detection, and the rule that places the cuts."""

import os

# Unless it is told otherwise before it is imported, ONNX Runtime reports to its maker which machine runs what. For that
# it keeps a file in TMPDIR.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
