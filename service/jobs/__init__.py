"""Jobs: transcriptions without a waiting client, kept on disk, run in the background, and reported by a webhook."""
