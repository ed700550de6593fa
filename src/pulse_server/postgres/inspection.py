"""Inspects a database for `pulsed check`: its version, limits, settings and missing rights."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pulse_server.base import tuning
from pulse_server.postgres.connection_limits import ConnectionLimit, limits_of
from pulse_server.postgres.connector import Connector, own_transaction
from pulse_server.postgres.failures import translated
from pulse_server.postgres.interface import RIGHTS
from pulse_server.postgres.privileges import Purpose, lacking_grants
from pulse_server.postgres.statements import statements

_SQL = statements("inspection.sql")
_NAMED = 3  # names shown of a long list, as in inspect_shadows


class GrantedRight(NamedTuple):
    """A right that a role has to functions of the interface."""

    right: str
    role: str | None
    """None is PUBLIC."""
    is_whole: bool
    """The role may call every function of the right."""


class Onlooker(NamedTuple):
    """A role that may connect and does not serve."""

    name: str
    is_superuser: bool
    sees_statements: bool
    """Those of the sessions of other roles."""
    reads_secret: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    version: str
    role: str
    database: str
    is_read_only: bool
    is_pooled: bool
    """A pooler such as PgBouncer is in between."""
    clock_ahead: timedelta
    """How far the database's clock is ahead of this machine's."""
    synchronous_commit: str
    has_fsync: bool
    limits: list[ConnectionLimit]
    connections_of_pulsed: int
    oldest_transaction: timedelta
    idle_in_transaction: timedelta
    owns_schema: bool | None
    """None if there is no schema yet."""
    lacking: dict[str, str]
    """Privileges that are missing, by table."""
    grants_to_serve: list[str]
    grants_to_migrate: list[str]
    """The statements that grant the role its missing rights."""
    without_identity: dict[str, str]
    """Tables whose rows a publication keeps from being changed, each with the publication."""
    creators: dict[str, str]
    """The other roles that may create functions, by schema."""
    shadows: dict[str, str]
    """Functions and operators of other roles under the names of built-in ones, by owner."""
    interface: list[GrantedRight]
    onlookers: list[Onlooker]
    connect_is_public: bool
    """Every role of the server may connect."""


async def inspect(dsn: str) -> Inspection:
    """Ask the database about itself and change nothing. Unavailable if it does not answer."""
    with translated("check"):
        # Leaves nothing prepared, so it works with and without a pooler.
        connection = await Connector(dsn, behind_pooler=True).connect(
            settings={"application_name": "pulsed check"}, command_timeout=tuning.STATEMENT_TIMEOUT
        )
        try:
            async with own_transaction(connection, readonly=True):
                is_pooled = (
                    await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
                )
                asked = datetime.now(UTC)
                row = await connection.fetchrow(_SQL["inspect_server"])
                answered = datetime.now(UTC)
                limits = await limits_of(connection)
                lacking = await connection.fetch(_SQL["inspect_privileges"])
                grants_to_serve = await lacking_grants(connection, Purpose.SERVE)
                grants_to_migrate = await lacking_grants(connection, Purpose.MIGRATE)
                identities = await connection.fetch(_SQL["inspect_identities"])
                creators = await connection.fetch(_SQL["inspect_creators"])
                shadows = await connection.fetch(_SQL["inspect_shadows"])
                onlookers = await connection.fetch(_SQL["inspect_onlookers"])
                functions = [(right, name) for right, names in RIGHTS.items() for name in names]
                interface = await connection.fetch(_SQL["inspect_interface"], *zip(*functions, strict=True))
        finally:
            connection.terminate()
    assert row is not None
    values = dict(row)
    return Inspection(
        **{name: values[name] for name in values.keys() & Inspection.__dataclass_fields__.keys()},
        is_pooled=is_pooled,
        limits=limits,
        clock_ahead=values["now"] - (asked + (answered - asked) / 2),
        oldest_transaction=timedelta(seconds=values["oldest_transaction_seconds"]),
        idle_in_transaction=timedelta(seconds=values["idle_in_transaction_seconds"]),
        lacking={entry["relation"]: entry["lacking"] for entry in lacking},
        grants_to_serve=grants_to_serve,
        grants_to_migrate=grants_to_migrate,
        without_identity={entry["relation"]: entry["publication"] for entry in identities},
        creators={entry["schema"]: entry["roles"] for entry in creators},
        shadows={entry["owner"]: _some(entry["names"], entry["total"]) for entry in shadows},
        interface=[GrantedRight(*entry) for entry in interface],
        onlookers=[Onlooker(*entry) for entry in onlookers],
    )


def _some(names: str, total: int) -> str:
    rest = total - _NAMED
    return f"{names} and {rest} more" if rest > 0 else names
