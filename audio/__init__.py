"""From the bytes of an upload or a file to mono samples at a model's rate."""
