"""Errors that end training."""


class TrainingError(Exception):
    """Training cannot begin or go on. The message is one line for the user."""


class RecipeError(TrainingError):
    """A recipe that cannot be read, or asks for something that does not exist.

    Attributes:
        key: the key that asks for it, such as `batches.rows`; empty if no single one does.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class ManifestError(TrainingError):
    """A manifest that cannot be read, or holds a clip that cannot be used."""


class ResumeError(TrainingError):
    """A run that cannot be resumed: its state is missing, unreadable, or of another recipe or other clips."""
