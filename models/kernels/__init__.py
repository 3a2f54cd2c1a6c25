"""Triton kernels, each beside a twin in plain PyTorch that its tests hold it to; only a GPU imports them."""
