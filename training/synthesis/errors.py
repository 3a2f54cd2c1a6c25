"""Why there is no synthetic speech."""

from training.errors import TrainingError


class SynthesisError(TrainingError):
    """Synthesis cannot begin or go on. The message is one line for the one who started it."""


class UnusableSpeechError(Exception):
    """What a synthesizer made of a sentence is nothing to learn from. The message is one of a few reasons."""
