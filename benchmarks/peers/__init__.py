"""The same weights and the same audio through Steno, NeMo, transformers and onnxruntime, in turns in one process."""
