"""Questions at the terminal."""

from __future__ import annotations

import sys

import click

from pulse_cli.failures import Failure, Misuse


def confirm(question: str, *, yes: bool) -> None:
    """Return only if the answer is yes. Without a terminal --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"{question} There is no terminal to ask at: add --yes to confirm.")
    if not click.confirm(question, err=True):
        raise Failure("nothing was changed.")


def new_password(prompt: str, *, from_stdin: bool) -> str:
    """Prompt for a password twice, or read it from standard input."""
    if from_stdin and not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Misuse("There is no terminal to prompt for the password: give it with --password-stdin.")
    return str(click.prompt(prompt, hide_input=True, confirmation_prompt="Again", err=True))
