"""HTTP processes (workers) before the dispatcher of the main process."""
