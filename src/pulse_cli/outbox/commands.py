"""`pulse outbox`: create the outbox in an application's Postgres, carry its jobs, and see to refused ones."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse_cli.connection import async_client_for, settings_here, with_password
from pulse_cli.declaring import Group
from pulse_cli.failures import NOT_FOUND, Failure, Misuse
from pulse_cli.inputs import WholeNumber, confirm
from pulse_cli.output import Shape, View, fields_shape, output_here
from pulse_cli.terminal import QUIET, Cell, Column, Row, ago, hint, now
from pulse_text import printable
from pulse_text.times import format_duration

if TYPE_CHECKING:
    from pulse_cli.outbox.database import Outbox, RefusedJob, Status

VARIABLE = "PULSE_OUTBOX_DSN"
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def dsn_option(command: F) -> F:
    """Add --dsn to a command."""
    return click.option(
        "--dsn",
        metavar="DSN",
        help="The application's database: postgresql://user@host/database. The default is "
        f"{VARIABLE}, which other users of the machine do not see. The password may also be in PGPASSWORD.",
    )(command)


@click.group(
    cls=Group,
    connects=False,
    examples="""
        pulse outbox install
        pulse outbox relay
        pulse outbox status
    """,
)
def outbox() -> None:
    """Submit jobs that an application stores in its own Postgres, in the transactions of its rows.

    For applications whose tables are in another database than pulsed. The jobs are carried by `relay`.
    """


@outbox.command(
    "install",
    short_help="Create the outbox in the application's database.",
    connects=False,
    examples="""
        pulse outbox install
        pulse outbox install --print > migrations/0042_outbox.sql
    """,
)
@dsn_option
@click.option("--print", "is_printed", is_flag=True, help="Print the statements and run nothing.")
def install(dsn: str | None, is_printed: bool) -> None:
    """Create the schema pulse_outbox with its table and functions, or bring the functions up to date."""
    from pulse_cli.outbox.database import outbox_sql

    if is_printed:
        click.echo(outbox_sql(), nl=False)
        return
    _with_outbox(dsn, lambda outbox: outbox.install())
    output_here().show_done("The outbox is there: the schema pulse_outbox.", {"schema": "pulse_outbox"})


@outbox.command(
    "relay",
    short_help="Carry jobs from the outbox to pulsed.",
    examples="""
        pulse outbox relay
        pulse outbox relay --addr pulse.example:50051
    """,
)
@dsn_option
def relay(dsn: str | None) -> None:
    """Carry jobs from the outbox to pulsed, until Ctrl-C or SIGTERM. Any number of relays may run.

    A crash of any part loses no job and doubles none, for as long as pulsed keeps the completed job. A job
    that pulsed refuses stays in the outbox with the reason; see `list`. Outages of pulsed and of the
    database are logged and waited for.
    """
    import asyncio

    address = _dsn(dsn)
    settings = with_password(settings_here())
    client = async_client_for(settings)
    from pulse_cli.outbox.relay import Relay
    from pulse_cli.running import configure_logging

    async def run() -> None:
        async with client:
            await Relay(address, client).run()

    configure_logging()
    hint(f"Carrying jobs from the outbox to {client.address}. Ctrl-C stops after the current batch.")
    asyncio.run(run())


@outbox.command(
    "status",
    short_help="Count the jobs in the outbox.",
    connects=False,
    examples="""
        pulse outbox status
        pulse outbox status -o json
    """,
)
@dsn_option
def status(dsn: str | None) -> None:
    """Show how many jobs wait for a relay, for how long the oldest has waited, and how many were refused."""
    found = _with_outbox(dsn, lambda outbox: outbox.status())
    output_here().show_done(status_words(found), status_shape(found))


@outbox.command(
    "list",
    short_help="List the refused jobs.",
    connects=False,
    examples="""
        pulse outbox list
        pulse outbox list --limit 1000 -o json
    """,
)
@dsn_option
@click.option("--limit", type=WholeNumber(1), default=50, show_default=True, help="The maximum to show.")
def list_refused(dsn: str | None, limit: int) -> None:
    """List the jobs that pulsed refused, the oldest first, each with the reason."""
    found = _with_outbox(dsn, lambda outbox: outbox.refused(limit))
    output_here().show_list(found, refused_view(), "No job of the outbox was refused.")


@outbox.command(
    "retry",
    short_help="Submit refused jobs again.",
    connects=False,
    examples="""
        pulse outbox retry 0199c0de-0000-7000-8000-000000000001
        pulse outbox retry --all
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All refused jobs.")
@dsn_option
def retry(ids: tuple[str, ...], everything: bool, dsn: str | None) -> None:
    """Let a relay submit refused jobs again, such as after their reason was removed."""
    chosen = _chosen(ids, everything)
    _show_each("to submit again", ids, _with_outbox(dsn, lambda outbox: outbox.retry(chosen)))


@outbox.command(
    "delete",
    short_help="Delete refused jobs.",
    connects=False,
    examples="""
        pulse outbox delete 0199c0de-0000-7000-8000-000000000001
        pulse outbox delete --all --yes
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All refused jobs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
def delete(ids: tuple[str, ...], everything: bool, yes: bool, dsn: str | None) -> None:
    """Delete refused jobs from the outbox. They never run. This cannot be undone."""
    chosen = _chosen(ids, everything)
    if everything:
        count = _with_outbox(dsn, lambda outbox: outbox.status()).refused
        confirm(f"Delete {count:,} refused jobs?", yes=yes)
    _show_each("deleted", ids, _with_outbox(dsn, lambda outbox: outbox.delete(chosen)))


def _chosen(ids: Sequence[str], everything: bool) -> list[str] | None:
    if bool(ids) == everything:
        raise click.UsageError("Give the ids of refused jobs, or --all.")
    for given in ids:
        try:
            uuid.UUID(given)
        except ValueError:
            raise Misuse(f"{given[:40]!r} is not the id of a job. See: pulse outbox list") from None
    return None if everything else [*ids]


def _show_each(done: str, ids: Sequence[str], found: list[str]) -> None:
    output_here().show_done(f"Refused jobs {done}: {len(found):,}.", [{"id": each} for each in found])
    missing = {str(uuid.UUID(given)) for given in ids} - {*found}
    if missing:
        raise Failure(f"The outbox has no refused job {', '.join(sorted(missing))}.", NOT_FOUND)


def _with_outbox(dsn: str | None, call: Callable[[Outbox], Awaitable[T]]) -> T:
    """Connect, call, and return the result."""
    import asyncio

    from pulse_cli.outbox.database import opened

    address = _dsn(dsn)

    async def run() -> T:
        async with opened(address) as outbox:
            return await call(outbox)

    return asyncio.run(run())


def _dsn(given: str | None) -> str:
    if dsn := given or os.environ.get(VARIABLE):
        return dsn
    raise Misuse(f"The application's database is unknown: set {VARIABLE}, or give --dsn.")


_COLUMNS = (
    Column("ID"),
    Column("TOPIC", shortest=16),
    Column("REFUSED", drop=1),
    Column("REASON", shortest=20),
)
_FIELDS = ("id", "topic", "stored_at", "refused_at", "refusal")


def status_shape(status: Status) -> Shape:
    """How many jobs are in the outbox."""
    return fields_shape(status, "waiting oldest_at lag refused")


def status_words(status: Status) -> str:
    """Return the counts in a sentence."""
    lag = "" if status.lag is None else f", the oldest for {format_duration(status.lag)}"
    return f"Waiting for a relay: {status.waiting:,}{lag}. Refused: {status.refused:,}."


# ---------------------------------------------------------------- views


def refused_view() -> View[RefusedJob]:
    """Return the view of a list of refused jobs."""
    present = now()

    def row(job: RefusedJob) -> Row:
        return [
            Cell(job.id),
            Cell(printable.one_line(job.topic)),
            Cell(ago(job.refused_at, present), QUIET),
            Cell(printable.one_line(job.refusal)),
        ]

    return View(_COLUMNS, row, refused_shape, _FIELDS)


def refused_shape(job: RefusedJob) -> Shape:
    """A job that pulsed refused."""
    return fields_shape(job, "id topic key stored_at refused_at refusal")
