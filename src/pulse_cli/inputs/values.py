"""Values of options: whole numbers, sizes, statuses, ids, and metadata as name=value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pulse_cli import tuning
from pulse_cli.failures import NOT_FOUND, Failure, Misuse
from pulse_text.jobs import STATUSES

if TYPE_CHECKING:
    from pulse import SyncPulse


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


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART = re.compile(r"[0-9a-f-]+")


def job_ids(client: SyncPulse, typed: Iterable[str]) -> list[str]:
    """Resolve ids and prefixes, each once. Raises before anything is changed."""
    # Check all before calling the server, so that a typo is reported at once.
    known = [(text, _checked(text)) for text in typed]
    return list(dict.fromkeys(_whole_job_id(client, *one) for one in known))


def job_id(client: SyncPulse, typed: str) -> str:
    """Resolve an id or a prefix. Raises Misuse if it is ambiguous, Failure if there is no such job."""
    return _whole_job_id(client, typed, _checked(typed))


def workflow_id(client: SyncPulse, typed: str) -> str:
    """Resolve an id or a prefix. A prefix is looked for among the newest workflows."""
    text = _checked(typed, "workflow")
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


def _checked(typed: str, kind: str = "job") -> str:
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
