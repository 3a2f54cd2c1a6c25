"""NeMo's archives (``.nemo``): from their configuration, weights and tokenizer to a checkpoint."""
