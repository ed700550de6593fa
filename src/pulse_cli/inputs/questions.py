"""Questions to the person at the terminal."""

from __future__ import annotations

import sys

import click

from pulse_cli.failures import Failure, Misuse


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if the answer is yes. Without a terminal --yes has to be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"{question} There is no terminal to ask at: add --yes if so.")
    if not click.confirm(question, err=True):
        raise Failure("nothing was changed.")


def new_password(prompt: str, *, from_stdin: bool) -> str:
    """Ask for a password twice, or read it from standard input."""
    if from_stdin and not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Misuse("There is no terminal to ask for the password at: give it with --password-stdin.")
    return str(click.prompt(prompt, hide_input=True, confirmation_prompt="Again", err=True))
