"""Silero's network for detecting speech, under the MIT licence; `build` rewrites it from the package silero-vad."""
