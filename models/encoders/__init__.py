"""Encoders: from features to encoder frames."""
