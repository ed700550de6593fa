"""The options that all commands share: how to print, where pulsed is, who asks."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click

from pulse_cli.failures import Misuse
from pulse_cli.inputs.times import duration_from

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
