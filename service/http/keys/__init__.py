"""API keys: who may use the service, and how much."""
