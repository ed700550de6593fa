"""How commands are declared: with examples in their help, and with the options that all of them share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from pulse_cli.durations import duration_from
from pulse_cli.failures import Misuse

FORMATS = ("table", "json", "plain")


def given(ctx: click.Context) -> dict[str, Any]:
    """Return the shared options that were given, before the command's name or after it."""
    known: dict[str, Any] = ctx.find_root().ensure_object(dict)
    return known


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and param.name is not None:
        given(ctx)[param.name] = value


def _read_password(ctx: click.Context, _: click.Parameter, value: bool | None) -> None:
    if not value:
        return
    if sys.stdin.isatty():
        text = str(click.prompt("Password", hide_input=True, err=True))
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise Misuse("--password-stdin found no password on standard input.")
    given(ctx)["password"] = text


def _shared(*names: str, **attributes: Any) -> click.Option:
    settings: dict[str, Any] = {"expose_value": False, "callback": _remember, "default": None}
    return click.Option(list(names), **settings | attributes)


OUTPUT_OPTIONS: tuple[click.Option, ...] = (
    _shared(
        *("-o", "--output", "output"),
        type=click.Choice(FORMATS),
        help="table for people (the default), json for programs, plain for cut and awk.",
    ),
)
CONNECTION_OPTIONS: tuple[click.Option, ...] = (
    _shared("--context", metavar="NAME", help="The saved context to use."),
    _shared("--addr", "address", metavar="HOST:PORT", help="Where pulsed is."),
    _shared("--user", metavar="NAME", help="Who to log in as; the password is asked for if none is known."),
    _shared(
        *("--password-stdin", "password"),
        is_flag=True,
        callback=_read_password,
        help="Read the password from standard input.",
    ),
    _shared("--tls/--no-tls", "tls", help="Speak TLS or not."),
    _shared("--tls-ca", metavar="FILE", help="The authority that signed the server's certificate."),
    _shared("--tls-cert", metavar="FILE", help="Your own certificate, for mutual TLS."),
    _shared("--tls-key", metavar="FILE", help="Its key, if it is not in the same file."),
    _shared("--tls-server-name", metavar="NAME", help="The name that the server's certificate has to bear."),
    _shared(
        "--timeout",
        type=duration_from(timedelta(milliseconds=1)),
        help="The longest that a call may take.",
    ),
)


class _Declared(click.Command):
    """Adds examples and the shared options to click's commands."""

    def __init__(self, *args: Any, examples: str = "", connects: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault(
            "context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        )
        super().__init__(*args, **kwargs)
        self.examples = [line.strip() for line in examples.strip().splitlines()]
        self.shared = [*OUTPUT_OPTIONS, *(CONNECTION_OPTIONS if connects else ())]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self.shared]

    def own_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return what only this command takes."""
        return [param for param in self.get_params(ctx) if param not in self.shared]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(ctx, formatter, "Options", self.own_params(ctx))
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:  # as they are: a wrapped command line cannot be copied
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        _write_options(ctx, formatter, "Shared options", self.shared)


class Command(_Declared):
    """A command that does something."""


class Group(_Declared, click.Group):
    """A command that has commands."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # as they were declared: by use, not by the alphabet

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1) if args else []
            if not close or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}. Did you mean {close[0]!r}?", ctx) from None


Group.group_class = Group


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Sequence[click.Parameter]
) -> None:
    records = [
        record
        for param in params
        if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
    ]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
