"""Transcribe archives: plan a job, keep a device or a cluster busy with it, and write each recording's row once."""
