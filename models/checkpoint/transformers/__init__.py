"""Folders that Hugging Face's transformers wrote: from their JSON and safetensors to a checkpoint.

What translates a section raises ``UnsupportedValueError``, which names the first key that asks for something else than
we do.
"""
