"""Transcriptions that nobody waits for: kept on disk, run when there is time, told of by a webhook."""
