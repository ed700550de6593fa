"""Failures and their exit codes.

0  done
1  refused by the server, or the job failed
2  the command line, a value or the configuration cannot be used
3  not found
4  not authenticated, or not permitted
5  no server, or no database behind it
130  interrupted with Ctrl-C
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import pulse

OK, FAILED, USAGE, NOT_FOUND, UNAUTHENTICATED, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


class Failure(Exception):
    """Ends a command with an exit code and a sentence on standard error; none if it was already printed.

    `details` are printed below the sentence, a line each.
    """

    def __init__(self, sentence: str = "", code: int = FAILED, details: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
        self.details = details


class Misuse(Failure):
    """The command line, a value or the configuration cannot be used."""

    def __init__(self, sentence: str, details: Sequence[str] = ()) -> None:
        super().__init__(sentence, USAGE, details)


# The fields of requests whose options have other names.
_OPTIONS = {
    "page_token": "The cursor",
    "submitted_since": "--since",
    "submitted_before": "--before",
    "error_contains": "--error",
    "error_group": "--error-group",
}


def failure_of(error: pulse.PulseError) -> Failure:
    """Return the failure for an error of the SDK."""
    import pulse

    message = error.message
    match error:
        case pulse.InvalidArgument():
            field, _, problem = message.partition(" ")
            return Failure(f"{_OPTIONS.get(field, field)} {problem}", USAGE)
        case pulse.NotFound():
            return Failure(f"{message} See: pulse {_list_for(message)}", NOT_FOUND)
        case pulse.Unauthenticated():
            hint = " Save the right ones with: pulse save creds"
            return Failure(message + hint, UNAUTHENTICATED)
        case pulse.PermissionDenied():
            hint = " `pulse config show` shows which user you are."
            return Failure(message + hint, UNAUTHENTICATED)
        case pulse.Unavailable():
            return Failure(message, UNAVAILABLE)
    return Failure(message)


def _list_for(message: str) -> str:
    """Return the command that lists what was not found."""
    if message.startswith("No worker "):
        return "workers"
    if message.startswith("There is no action "):
        return "audit"
    kind = re.search("job|schedule|workflow", message.lower())
    return f"{kind[0] if kind else 'job'}s list"


def usage_sentence(error: click.UsageError) -> str:
    """Return click's error as one sentence with the next step."""
    path = error.ctx.command_path if error.ctx is not None else "pulse"
    text = error.format_message().rstrip()
    if text and text[-1] not in ".?!)":
        text += "."
    return f"{text} See: {path} --help"
