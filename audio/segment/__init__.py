"""Cutting a long recording into utterances: voice activity detection, and the rule that places the cuts."""
