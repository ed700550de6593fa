"""Reads command lines as `pulse` does, without running a command."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import click

from pulse_cli.declaring import Command, Group


@contextmanager
def nothing_runs() -> Iterator[list[str]]:
    """Yield the list of the commands that would have run. A group may run by itself."""
    ran: list[str] = []
    enter = Group.invoke

    def enter_or_run(group: Group, ctx: click.Context) -> object:
        runs_itself = group.invoke_without_command and not [*ctx._protected_args, *ctx.args]
        return ran.append(ctx.command_path) if runs_itself else enter(group, ctx)

    with (
        mock.patch.object(sys, "stdin", io.StringIO("secret")),
        mock.patch.object(Command, "invoke", lambda _, ctx: ran.append(ctx.command_path)),
        mock.patch.object(Group, "invoke", enter_or_run),
    ):
        yield ran
