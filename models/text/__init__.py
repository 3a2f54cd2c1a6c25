"""Text: from tokens and their frames to words with times, and from prompts to tokens."""
