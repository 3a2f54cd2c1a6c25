"""Search: from scores to tokens with their frames and confidence."""
