"""Heads: from encoder frames to scores over the vocabulary."""
