"""Synthetic training speech by the speech synthesizers of Debian, and Kokoro."""
