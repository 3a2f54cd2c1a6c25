"""Errors of speech synthesis."""

from training.errors import TrainingError


class SynthesisError(TrainingError):
    """Synthesis cannot begin or go on. The message is one line for the user."""


class UnusableSpeechError(Exception):
    """The speech for a sentence cannot be used. The message is one of a few reasons."""
