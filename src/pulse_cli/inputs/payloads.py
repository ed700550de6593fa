"""The payload of a job: from an option, a file or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pulse_cli.failures import Misuse

F = TypeVar("F", bound=Callable[..., Any])


def read_payload(payload: str | None, file: str | None, source: str | None, *, raw: bool) -> bytes | None:
    """Return the bytes to send, or None if there is no payload. Raises Misuse if it is not JSON."""
    if sum(given is not None for given in (payload, file, source)) > 1:
        raise Misuse("Give one of --payload, --file or -.")
    if payload is not None:
        return _checked(payload.encode(errors="surrogateescape"), "--payload", raw)
    if file is not None and file != "-":
        try:
            return _checked(Path(file).read_bytes(), file, raw)
        except OSError as error:
            raise Misuse(f"{file} cannot be read: {error.strerror}.") from None
    if file == "-" or source == "-":
        return _checked(sys.stdin.buffer.read(), "standard input", raw)
    if source is not None:
        raise Misuse(f"Unexpected {source!r}: give the payload with --payload, --file or - (standard input).")
    return None


class _NoJsonNumber(Exception):
    """NaN, Infinity or -Infinity, which Python reads as JSON and no other reader does."""


def _refuse_constant(name: str) -> None:
    raise _NoJsonNumber(name)


def _checked(content: bytes, where: str, raw: bool) -> bytes:
    if raw:
        return content
    try:
        json.loads(content, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        problem = "it is not UTF-8"
    except json.JSONDecodeError as error:
        problem = f"{error.msg}, line {error.lineno}, column {error.colno}"
    except RecursionError:
        problem = "it is nested too deeply"
    except _NoJsonNumber as error:
        problem = f"it has {error}, which JSON cannot hold"
    else:
        return content
    advice = (
        'Quote it for the shell, such as --payload \'{"to": "a@b.c"}\', or give --raw to send it unchanged.'
    )
    raise Misuse(f"Not valid JSON in {where}: {problem}. {advice}")


def payload_options(command: F) -> F:
    """Add --payload, --file, - and --raw to a command."""
    for decorate in (
        click.option(
            "--raw", is_flag=True, help="Send the payload unchanged, without checking that it is JSON."
        ),
        click.option("--file", metavar="FILE", help="Read the payload from this file."),
        click.option("--payload", metavar="JSON", help="The payload itself."),
        click.argument("source", required=False, metavar="[-]"),
    ):
        command = decorate(command)
    return command
