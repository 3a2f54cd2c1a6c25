"""The engine: a process that owns the model and the device, and what starts, feeds and replaces it."""
