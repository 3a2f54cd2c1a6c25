"""Transcribe archives: plan a job, keep a device busy with it or a cluster, write each recording's row once."""
