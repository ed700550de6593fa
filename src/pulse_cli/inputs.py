"""What a command is given: values of options, ids, payloads, the options that commands share, and answers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.failures import NOT_FOUND, Failure, Misuse
from pulse_text.jobs import STATUSES
from pulse_text.times import format_exact, now, parse_duration, parse_moment, parse_past_moment

if TYPE_CHECKING:
    from pulse import SyncPulse
    from pulse_text.consequences import Question


F = TypeVar("F", bound=Callable[..., Any])


# ---------------------------------------------------------------- values


class WholeNumber(click.IntRange):
    """A whole number from `min` to `max`. A wrong value is refused with its bounds in words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            bounds = "" if self.min is None else f" from {self.min:,}"
            bounds += " on" if self.max is None else f" to {self.max:,}"
            self.fail(f"{str(value)[:40]!r} is not a whole number{bounds}.", param, ctx)


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgt])i?b?", re.IGNORECASE)


def size(text: str) -> int:
    """Convert the value of an option to bytes. K, M, G and T are powers of 1024, as in Kubernetes' Mi."""
    match = _SIZE.fullmatch("".join(text.split()))
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size: write a number with a unit, such as 512M or 2G.")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def status(text: str) -> str:
    """Convert the value of an option to a status; dead-lettered and `cancelled` are accepted too."""
    name = {"CANCELLED": "CANCELED"}.get(text.upper(), text.upper()).replace("-", "_")
    if name not in STATUSES:
        raise click.BadParameter(f"{text!r} is not a status: use one of {', '.join(STATUSES)}.")
    return name


def complete_status(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """Complete a status for a shell."""
    return [name for name in STATUSES if name.startswith(typed.upper())]


metadata_option = click.option(
    "--metadata", multiple=True, metavar="NAME=VALUE", help="A string stored with the job; repeatable."
)


def read_metadata(pairs: Sequence[str]) -> dict[str, str] | None:
    """Return the pairs as a mapping, or None if there are none."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Misuse(f"--metadata {pair!r} is not of the form name=value.")
        found[name] = value
    return found or None


# ---------------------------------------------------------------- ids

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART = re.compile(r"[0-9a-f-]+")


def job_ids(client: SyncPulse, typed: Iterable[str]) -> list[str]:
    """Resolve ids and prefixes, each once. Raises before anything is changed."""
    # Check all before calling the server, so that a typo is reported at once.
    known = [(text, _checked_id(text)) for text in typed]
    return list(dict.fromkeys(_whole_job_id(client, *one) for one in known))


def job_id(client: SyncPulse, typed: str) -> str:
    """Resolve an id or a prefix. Raises Misuse if it is ambiguous, Failure if there is no such job."""
    return _whole_job_id(client, typed, _checked_id(typed))


def workflow_id(client: SyncPulse, typed: str) -> str:
    """Resolve an id or a prefix. A prefix is looked for among the newest workflows."""
    text = _checked_id(typed, "workflow")
    if _ID.fullmatch(text):
        return text
    newest = client.workflows.list(limit=tuning.WORKFLOWS_SEARCHED)
    wanted = text.replace("-", "")
    found = [one.id for one in newest if one.id.replace("-", "").startswith(wanted)]
    if not found and newest.next_cursor is not None:
        raise Failure(
            f"None of the newest {tuning.WORKFLOWS_SEARCHED:,} workflows has an id that starts with "
            f"{typed!r}. Give the whole id of an older one.",
            NOT_FOUND,
        )
    return _only(found, typed, "workflow")


def is_whole_id(text: str) -> bool:
    """True for an id of 36 characters."""
    return _ID.fullmatch(text.strip().lower()) is not None


def _checked_id(typed: str, kind: str = "job") -> str:
    text = typed.strip().lower()
    digits = text.replace("-", "")
    if not _PART.fullmatch(text) or len(digits) > 32:
        raise Misuse(f"{typed!r} is not the id of a {kind}: copy one from `pulse {kind}s list`.")
    if len(digits) < tuning.SHORTEST_PREFIX:
        raise Misuse(
            f"{typed!r} is too short for a prefix: type {tuning.SHORTEST_PREFIX} characters or more."
        )
    return text


def _whole_job_id(client: SyncPulse, typed: str, text: str) -> str:
    return text if _ID.fullmatch(text) else _only(client.find_jobs(text), typed, "job")


def _only(found: Sequence[str], typed: str, kind: str) -> str:
    match found:
        case []:
            raise Failure(
                f"There is no {kind} whose id starts with {typed!r}. See: pulse {kind}s list", NOT_FOUND
            )
        case [one]:
            return one
    named = ", ".join(found[: tuning.CANDIDATES_NAMED])
    more = " and more" if len(found) > tuning.CANDIDATES_NAMED else ""
    raise Misuse(
        f"{typed!r} matches several ids: {named}{more}. "
        f"Type more of it: an id starts with its time, so {kind}s of the same moment differ further back."
    )


# ---------------------------------------------------------------- durations and moments


def duration(text: str | timedelta) -> timedelta:
    """Convert the value of an option to a duration."""
    if isinstance(text, timedelta):  # a default
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_from(shortest: timedelta) -> Callable[[str | timedelta], timedelta]:
    """Return a converter that also refuses durations below `shortest`."""

    def convert(text: str | timedelta) -> timedelta:
        span = duration(text)
        if span < shortest:
            raise click.BadParameter(f"{text!r} is too short: the minimum is {format_exact(shortest)}.")
        return span

    convert.__name__ = "duration"  # what help shows
    return convert


def moment(text: str) -> datetime:
    """Convert the value of an option to a point in time."""
    try:
        return parse_moment(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def past_moment(text: str) -> datetime:
    """Convert the value of an option to a point in time; a duration means that long ago."""
    try:
        return parse_past_moment(text, present=now())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


# ---------------------------------------------------------------- payloads


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


# ---------------------------------------------------------------- options that commands share

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
        "-o",
        "--output",
        "output",
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
        "--password-stdin",
        "password",
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


# ---------------------------------------------------------------- answers


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


def confirm_harm(client: SyncPulse, question: Question, *, yes: bool) -> None:
    """Return if the change does no harm, or if the answer is yes."""
    if yes:
        return
    text = _text(client, question)
    if text is not None:
        confirm(text if text.endswith("?") else f"{text} Continue?", yes=yes)


def _text(client: SyncPulse, question: Question) -> str | None:
    from pulse import PermissionDenied

    answer: Any = None
    try:
        while True:
            method, options = question.send(answer)
            answer = getattr(client, method)(**options)
    except StopIteration as end:
        text: str | None = end.value
        return text
    except PermissionDenied:  # of the count: a worker may hold its topics, and may not list them
        return None
