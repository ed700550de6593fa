"""Checks the database: whether it responds, its schema fits, and its limits suffice."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta

from pulse_server.base.errors import PulseError
from pulse_server.checks.findings import Finding, fail, info, ok, warn
from pulse_server.database.rights import RIGHTS, Inspection, inspect, wait_until_reachable
from pulse_server.database.schema import SchemaBehind, require_current_schema
from pulse_server.database.urls import read_database_url
from pulse_server.settings import Settings

# How long `pulsed check` waits for the database: a person is waiting for its output.
CHECK_PATIENCE = timedelta(seconds=2)

_CLOCKS_AGREE = timedelta(seconds=1)
# A queue's table bloats while a transaction is this old, and every claim gets slower.
_OLD_TRANSACTION = timedelta(hours=1)
_FORGOTTEN = timedelta(minutes=10)
# Names of roles in a sentence.
_ROLES_NAMED = 10


async def check_database(settings: Settings, dsn: str, *, migrates: bool) -> list[Finding]:
    return [finding async for finding in _findings(settings, dsn, migrates)]


async def _findings(settings: Settings, dsn: str, migrates: bool) -> AsyncIterator[Finding]:
    for entry in read_database_url(dsn).ignored:
        yield (warn if entry.is_missed else info)("database", f"In DB_HOST, {entry}.")
    try:
        await wait_until_reachable(dsn, CHECK_PATIENCE)
        found = await inspect(dsn)
    except PulseError as error:
        yield fail("database", str(error))
        return
    yield ok("database", f"PostgreSQL {found.version}, database {found.database}, as {found.role}.")
    for finding in (*_pooler(settings, found), *_server(found), *_room(settings, found)):
        yield finding
    async for finding in _schema(dsn, found, migrates):
        yield finding
    for relation, lacking in found.lacking.items():
        yield fail(
            "privileges",
            f"{found.role} lacks {lacking} on pulse.{relation}. Grant it, or have the schema's owner serve.",
        )
    if found.grants_to_serve:
        level = info if found.lacking else fail
        yield level("privileges", f"{found.role} can serve after: {' '.join(found.grants_to_serve)}")
    elif found.owns_schema is not None:
        yield ok("privileges", f"{found.role} may use every table of the schema pulse.")
    for relation, publication in found.without_identity.items():
        yield fail(
            "schema",
            f"The publication {publication} keeps rows of {relation} from being changed or deleted. "
            f"ALTER TABLE {relation} REPLICA IDENTITY FULL;",
        )
    for finding in (*_other_roles(found), *_interface(found), *_onlookers(found)):
        yield finding


def _pooler(settings: Settings, found: Inspection) -> Iterator[Finding]:
    if found.is_pooled and not settings.behind_pooler:
        yield fail(
            "database",
            "DB_HOST leads to a pooler such as PgBouncer. Set PULSE_DB_POOLER=on: it refuses the session "
            "settings that pulsed asks for otherwise.",
        )
    if settings.behind_pooler and not found.is_pooled:
        yield info(
            "database",
            "PULSE_DB_POOLER is on, but no pooler was met. Without it, jobs are handed out sooner.",
        )


def _server(found: Inspection) -> Iterator[Finding]:
    if found.is_read_only:
        yield fail("database", "It is a standby, or read-only. Name the primary in DB_HOST, or all hosts.")
    if not found.has_fsync or found.synchronous_commit == "off":
        what = "fsync" if not found.has_fsync else "synchronous_commit"
        yield warn(
            "database",
            f"{what} is off: jobs that were acknowledged are lost if the database crashes. Turn it on.",
        )
    ahead = found.clock_ahead
    difference = f"This machine's clock and the database's differ by {abs(ahead.total_seconds()):.1f} s."
    if abs(ahead) > _CLOCKS_AGREE:
        yield info("clock", f"{difference} Only the times in logs are affected: rules use the database's.")
    if found.oldest_transaction > _OLD_TRANSACTION:
        yield warn(
            "database",
            f"A transaction has been open for {_span(found.oldest_transaction)}. It keeps dead rows from "
            "being cleared away, which slows the queue down. Look for it in pg_stat_activity (xact_start).",
        )
    elif found.idle_in_transaction > _FORGOTTEN:
        yield warn(
            "database",
            f"A session has been idle in a transaction for {_span(found.idle_in_transaction)}: look for it "
            "in pg_stat_activity, or set idle_in_transaction_session_timeout.",
        )


def _room(settings: Settings, found: Inspection) -> Iterator[Finding]:
    if settings.behind_pooler or found.is_pooled:
        yield info("connections", f"Up to {settings.most_connections}, from the pooler.")
        return
    processes = f" ({settings.processes} processes)" if settings.processes > 1 else ""
    needed = f"Up to {settings.most_connections} would be used{processes}"
    beside = f"; {found.connections_of_pulsed} are another pulsed's" if found.connections_of_pulsed else ""
    tightest = min(found.limits, key=lambda limit: limit.allowed - limit.used)
    left = f"{tightest.allowed - tightest.used} are free for this role"
    if settings.most_connections <= tightest.allowed - tightest.used:
        yield ok("connections", f"{needed}; {left}{beside}.")
        return
    yield warn(
        "connections",
        f"{needed}, but {left}{beside}. Under load, calls would fail as UNAVAILABLE. "
        f"{tightest.sentence(settings.most_connections)} Or run fewer processes.",
    )


async def _schema(dsn: str, found: Inspection, migrates: bool) -> AsyncIterator[Finding]:
    if found.lacking.get("schema_migrations"):
        return  # it cannot be read; the check of privileges reports why
    try:
        await require_current_schema(dsn)
    except SchemaBehind as error:
        missing = ", ".join(error.missing)
        if not migrates:
            yield fail("schema", str(error))
        elif found.is_pooled:
            yield fail("schema", "A migration cannot run through a pooler: run `pulsed migrate` without it.")
        elif found.grants_to_migrate:
            grants = " ".join(found.grants_to_migrate)
            yield fail("schema", f"{found.role} may not apply {missing}. It can after: {grants}")
        else:
            yield info("schema", f"--migrate would apply {missing}.")
    except PulseError as error:
        yield fail("schema", str(error))
    else:
        yield ok("schema", "Up to date.")


def _other_roles(found: Inspection) -> Iterator[Finding]:
    """Functions and operators that other roles could make the sessions of pulsed run."""
    for schema, roles in found.creators.items():
        why = (
            "a function of theirs there could run with the rights of pulsed"
            if schema == "pulse"
            else "pulsed does not look for names there, but other programs of this database do"
        )
        yield warn(
            "privileges",
            f"CREATE on the schema {schema} is granted to {roles}: {why}. "
            f"REVOKE CREATE ON SCHEMA {schema} FROM {roles};",
        )
    for owner, names in found.shadows.items():
        yield warn(
            "privileges",
            f"The role {owner} made functions or operators under the names of built-in ones, or in the "
            f"schema pulse: {names}. Look at what they do, and drop them.",
        )


def _interface(found: Inspection) -> Iterator[Finding]:
    """The roles of applications that may enqueue or complete jobs by SQL."""
    for right, functions in RIGHTS.items():
        granted = [entry for entry in found.interface if entry.right == right]
        if any(entry.role is None for entry in granted):
            names = ", ".join(f"pulse.{name}" for name in functions)
            yield warn(
                "privileges",
                f"Every role of the database may {right} jobs. Grant the right to single roles "
                f"(`pulsed grants`) and run: REVOKE EXECUTE ON FUNCTION {names} FROM PUBLIC;",
            )
        for entry in granted:
            if entry.role is not None and not entry.is_whole:
                yield warn(
                    "privileges",
                    f"The role {entry.role} may call only some of the functions that {right} jobs, or may "
                    f"not use the schema. Run the statements of: pulsed grants --{right} "
                    f"{shlex.quote(entry.role)}",
                )
        if whole := [entry.role for entry in granted if entry.role is not None and entry.is_whole]:
            roles = ", ".join(whole)
            yield info("privileges", f"Roles that may {right} jobs in their own transactions: {roles}.")


def _onlookers(found: Inspection) -> Iterator[Finding]:
    """Roles that may connect, and so LISTEN, NOTIFY and lock, and what else they see. ADR-0084"""
    if readers := [role.name for role in found.onlookers if role.reads_secret and not role.is_superuser]:
        yield warn(
            "roles",
            f"Roles that do not serve may read pulse.cluster_secret: {_named(readers)}. With it a role can "
            "send messages in the name of a server, and complete jobs of others. End the membership that "
            f"gives it this right, or run: REVOKE SELECT ON pulse.cluster_secret FROM {', '.join(readers)}; "
            "Then replace the secret.",
        )
    if seeing := [
        f"{role.name} (superuser)" if role.is_superuser else role.name
        for role in found.onlookers
        if role.sees_statements
    ]:
        yield info(
            "roles",
            "Roles that may see the statements of others, and so the name of the channel between servers: "
            f"{_named(seeing)}. With the name they hear ids, topics, worker ids and lines of errors.",
        )
    if others := [role.name for role in found.onlookers if not role.is_superuser]:
        public = " CONNECT is granted to PUBLIC, which has every role." if found.connect_is_public else ""
        yield info(
            "roles", f"Roles that may connect to the database and do not serve: {_named(others)}.{public}"
        )


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _ROLES_NAMED
    return ", ".join(names[:_ROLES_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _span(span: timedelta) -> str:
    hours, minutes = divmod(int(span.total_seconds()) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
