"""Folders that Hugging Face's transformers wrote: from their JSON and safetensors to a checkpoint."""
