"""Why a job cannot go on."""


class JobError(Exception):
    """The input cannot be read, the output cannot be written, or no device does the work; the message is one line."""
