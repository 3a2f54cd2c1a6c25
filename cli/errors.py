"""The error of a command that cannot start."""


class CommandError(Exception):
    """Wrong usage, or an unreadable checkpoint or manifest. The message is one line for the terminal."""
