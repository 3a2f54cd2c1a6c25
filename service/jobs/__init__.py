"""Jobs: transcriptions that nobody waits for, kept on disk, run in the background, and reported by a webhook."""
