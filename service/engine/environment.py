"""The environment of an engine, which tests and benchmarks share, so that what they measure is what is served."""

# Buckets have different shapes; an allocator with fixed segments would fragment.
ALLOCATOR = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
