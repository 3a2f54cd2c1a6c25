"""What turns encoder frames into scores over the vocabulary."""
