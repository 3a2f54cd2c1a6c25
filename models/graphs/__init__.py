"""CUDA graphs of a model's work, for batches of a few sizes; on a CPU the work is simply called."""
