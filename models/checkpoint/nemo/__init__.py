"""NeMo's archives (``.nemo``): from their configuration, weights and tokenizer to a checkpoint.

What translates a section raises ``UnsupportedValueError``, which names the first key that asks for something else than
we do.
"""
