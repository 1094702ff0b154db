"""What can stop the command itself, as opposed to a case: each ends the process with its own exit code."""

from __future__ import annotations


class UsageError(Exception):
    """The command line, a settings file or another input is wrong (exit code 2). The message is one line that says
    what is wrong and what to do."""


class RunError(Exception):
    """The run itself failed, whatever the models do (exit code 3). The message is one line."""
