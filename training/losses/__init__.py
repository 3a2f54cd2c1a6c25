"""The loss of transducers, computed with the memory of a part of a batch."""
