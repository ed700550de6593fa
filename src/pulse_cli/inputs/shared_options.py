"""The options that commands share: output, address, user, TLS, and the pages of lists."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.failures import Misuse
from pulse_cli.inputs.times import duration_from
from pulse_cli.inputs.values import WholeNumber

FORMATS = ("table", "json", "plain")


def given(ctx: click.Context) -> dict[str, Any]:
    """Return the shared options, given before the command's name or after it."""
    known: dict[str, Any] = ctx.find_root().ensure_object(dict)
    return known


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and param.name is not None:
        given(ctx)[param.name] = value


def _read_password(ctx: click.Context, _: click.Parameter, value: bool | None) -> None:
    if not value or ctx.resilient_parsing:  # a shell completes the line: nothing may be read
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
        help="table (the default), json for programs, plain for cut and awk.",
    ),
)
CONNECTION_OPTIONS: tuple[click.Option, ...] = (
    _shared("--context", metavar="NAME", help="The saved context to use."),
    _shared("--addr", "address", metavar="HOST:PORT", help="The address of pulsed."),
    _shared(
        "--user", metavar="NAME", help="The user to log in as; prompts for the password if none is known."
    ),
    _shared(
        *("--password-stdin", "password"),
        is_flag=True,
        callback=_read_password,
        help="Read the password from standard input.",
    ),
    _shared("--tls/--no-tls", "tls", help="Use TLS or not."),
    _shared("--tls-ca", metavar="FILE", help="The CA certificate that verifies the server."),
    _shared("--tls-cert", metavar="FILE", help="The client certificate, for mutual TLS."),
    _shared("--tls-key", metavar="FILE", help="Its key, if it is not in the same file."),
    _shared("--tls-server-name", metavar="NAME", help="The name expected in the server's certificate."),
    _shared(
        "--timeout",
        type=duration_from(timedelta(milliseconds=1)),
        help="The time limit of a call.",
    ),
)


F = TypeVar("F", bound=Callable[..., Any])

reason_option = click.option(
    "--reason", metavar="TEXT", expose_value=False, callback=_remember, help="The reason, kept in the audit."
)
"""For commands that change something. `reason_here` returns its value."""


def reason_here() -> str:
    """Return the reason given to the running command; empty if there is none."""
    return str(given(click.get_current_context()).get("reason", ""))


def once_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option with one value. A repetition is refused: of two filters the last would win."""
    return click.option(*names, multiple=True, callback=_only_one, **attributes)


def _only_one(_: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
    if len(values) > 1:
        raise click.UsageError(
            f"{param.opts[0]} is given {len(values)} times, and takes one value here: run the command once "
            "for each."
        )
    return values[0] if values else None


def paging_options(command: F, *, limit: int = tuning.PAGE_SIZE) -> F:
    """Add --limit, --all and --cursor to a command."""
    for decorate in (
        click.option("--cursor", metavar="CURSOR", help="Continue where the previous list ended."),
        click.option("--all", "everything", is_flag=True, help="The whole list."),
        click.option(
            "--limit",
            type=WholeNumber(min=1),
            default=limit,
            show_default=True,
            metavar="N",
            help="The maximum to show.",
        ),
    ):
        command = decorate(command)
    return command
