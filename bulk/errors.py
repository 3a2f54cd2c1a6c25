"""The error of a job that cannot go on."""


class JobError(Exception):
    """Input cannot be read, output cannot be written, or the machine cannot do the work. The message is one line."""
