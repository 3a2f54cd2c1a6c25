"""Cutting a long recording into utterances: voice activity detection, and the rule that places the cuts."""

import os

# ONNX Runtime sends telemetry, and keeps a file in TMPDIR for it, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
