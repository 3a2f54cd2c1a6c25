"""CUDA graphs of what a model does, for batches of a few sizes; on a CPU the same is simply called."""
