"""Losses of transducers, which hold no more in memory than a part of a batch."""
