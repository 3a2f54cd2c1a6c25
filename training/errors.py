"""Why training was not begun, or stopped."""


class TrainingError(Exception):
    """Training cannot begin or go on. The message is one line for the one who started it."""


class RecipeError(TrainingError):
    """A recipe that cannot be read, or asks for something that does not exist."""


class ManifestError(TrainingError):
    """A manifest that cannot be read, or holds a clip that cannot be used."""


class ResumeError(TrainingError):
    """A run that cannot be gone on with: it is not there, or it is another one."""
