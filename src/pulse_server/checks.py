"""`pulsed check`: reports problems in a configuration before a server starts with it.

It prints the settings, each with its value and where it comes from, and no secret. Then it checks how the
ports are protected (users, certificates, addresses), and the database: whether it responds, its schema fits,
and its limits suffice.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import shlex
import textwrap
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pulse_server.access.users import BadUsers, User, parse_users, read_users_file
from pulse_server.base import tuning
from pulse_server.base.errors import PulseError
from pulse_server.database.rights import RIGHTS, Inspection, inspect, wait_until_reachable
from pulse_server.database.schema import SchemaBehind, require_current_schema
from pulse_server.database.urls import BadConnectionString, is_url, read_database_url, split_key_value
from pulse_server.doors.addresses import PortInUse, probe
from pulse_server.embedded import DataDirectoryInUse, DataDirectoryUnusable, EmbeddedError
from pulse_server.embedded.directory import DataDirectory, choose_installation, open_own, written_by_major
from pulse_server.embedded.processes import choose_identity
from pulse_server.settings import OPTIONS, BadSettings, Option, Settings, TlsFiles, read_settings
from pulse_server.settings.options import is_loopback

_WIDTH = 100
_SUBJECT = 12


class Severity(StrEnum):
    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "FAIL"
    """pulsed would not start, or could not serve."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One sentence about one subject. If the operator must act, the sentence says how."""

    level: Severity
    subject: str
    sentence: str


def ok(subject: str, sentence: str) -> CheckResult:
    return CheckResult(Severity.OK, subject, sentence)


def info(subject: str, sentence: str) -> CheckResult:
    return CheckResult(Severity.INFO, subject, sentence)


def warn(subject: str, sentence: str) -> CheckResult:
    return CheckResult(Severity.WARN, subject, sentence)


def fail(subject: str, sentence: str) -> CheckResult:
    return CheckResult(Severity.FAIL, subject, sentence)


def printed(findings: Iterable[CheckResult]) -> str:
    """The findings as aligned lines."""
    lines: list[str] = []
    for finding in findings:
        head = f"  {finding.level:<5}{finding.subject:<{_SUBJECT}}"
        lines += textwrap.wrap(
            finding.sentence,
            _WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def verdict(findings: Iterable[CheckResult]) -> str:
    """The last line: whether it would work."""
    levels = [finding.level for finding in findings]
    failures, warnings = levels.count(Severity.FAIL), levels.count(Severity.WARN)
    counted = f"{warnings} warning{'' if warnings == 1 else 's'}"
    if failures:
        return f"pulsed would not serve: {failures} problem{'' if failures == 1 else 's'}, {counted}."
    return f"pulsed would serve; {counted}." if warnings else "pulsed would serve."


# Variables of the SDK and the command `pulse`: both may run in the same container.
_OF_OTHERS = frozenset(
    {
        "PULSE_ADDR",
        "PULSE_CONTEXT",
        "PULSE_DEBUG",
        "PULSE_USER",
        "PULSE_PASSWORD",
        "PULSE_TLS",
        "PULSE_TLS_CA",
        "PULSE_TLS_CLIENT_CERT",
        "PULSE_TLS_CLIENT_KEY",
        "PULSE_TLS_SERVER_NAME",
    }
)
# Read by the fault tests of pulse. Not settings. docs/figures.md#failpoints
_OF_TESTS = frozenset({"PULSE_FAILPOINTS", "PULSE_FAILPOINTS_SEED", "PULSE_REFUSE_CONNECTIONS"})
# Kubernetes gives these to every pod for a Service whose name begins with "pulse".
_OF_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_TAKEN_FOR_DB_HOST = ("DATABASE_URL", "DB_URL", "POSTGRES_URL", "PULSE_DB_HOST", "PULSE_DATABASE_URL")


def listed(environ: Mapping[str, str], flags: Mapping[str, str], settings: Settings | None) -> str:
    """One line per setting. If the settings are invalid, and so None, shows the raw text."""
    rows = [(option.variable, *_value_and_origin(option, environ, flags, settings)) for option in OPTIONS]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {origin}" for name, value, origin in rows)


def unknown_variables(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Variables that look like settings of pulsed and are not."""
    known = {option.variable for option in OPTIONS} | _OF_OTHERS | _OF_TESTS
    for name in sorted(environ):
        is_of_others = _OF_KUBERNETES.fullmatch(name) or name.startswith("PULSE_UI_")
        is_meant = name.startswith("PULSE_") and not is_of_others
        if is_meant and name not in known.union(_TAKEN_FOR_DB_HOST):
            close = get_close_matches(name, known, n=1, cutoff=0.7)
            meant = f"Did you mean {close[0]}?" if close else "`pulsed --help` lists the settings."
            yield warn("settings", f"{name} is set, but pulsed has no such setting. {meant}")
    if not environ.get("DB_HOST"):
        for name in _TAKEN_FOR_DB_HOST:
            if environ.get(name):
                yield warn(
                    "settings",
                    f"{name} is set, but pulsed reads DB_HOST, which is not: "
                    "it would start an embedded Postgres.",
                )


def shown_url(url: str) -> str:
    """User, hosts and database of a URL. Text that may be part of a password is left out."""
    if not is_url(url):
        return _shown_pairs(url)
    try:
        parts = urlsplit(url)
        query = dict(pair.partition("=")[::2] for pair in parts.query.split("&"))
    except ValueError:
        return "(cannot be read as a URL)"
    before, _, hosts = parts.netloc.rpartition("@")
    # A slash in the password ends the host part too early: the rest of the password and the host
    # then end up in the path, the query or the fragment.
    is_torn = "@" in f"{parts.path}{parts.query}{parts.fragment}"
    ports = [host.rpartition(":")[2] for host in hosts.split(",") if ":" in host.rpartition("]")[2]]
    if is_torn or not all(port.isdecimal() for port in ports):
        return "(cannot be read as a URL)"
    user = unquote(before.partition(":")[0]) or unquote(query.get("user", ""))
    hosts = hosts or unquote(query.get("host", "")) or "localhost"
    return f"{f'{user}@' if user else ''}{hosts}{unquote(parts.path) or '/'}"


def _shown_pairs(text: str) -> str:
    try:
        pairs = split_key_value(text)
    except BadConnectionString:
        return "(cannot be read as a URL)"
    shown = {name: pairs[name] for name in ("host", "port", "dbname", "user", "service") if name in pairs}
    return " ".join(f"{name}={value}" for name, value in shown.items()) or "(cannot be read as a URL)"


def shown_users(users: tuple[User, ...]) -> str:
    return ", ".join(f"{user.name} ({user.role})" for user in users)


def _value_and_origin(
    option: Option, environ: Mapping[str, str], flags: Mapping[str, str], settings: Settings | None
) -> tuple[str, str]:
    given = (
        flags.get(option.variable) if option.variable in flags else environ.get(option.variable, "")
    ) or ""
    origin = "flag" if option.variable in flags else "environment"
    if not given.strip():
        return _default(option, settings), "default"
    if option.is_secret:
        return _masked(option, given), origin
    if settings is not None and option.field in ("grpc_address", "http_address"):
        return str(getattr(settings, option.field)), origin
    return given.strip(), origin


def _default(option: Option, settings: Settings | None) -> str:
    if option.field == "database_url":
        return "(an embedded Postgres)"
    if settings is None or option.field not in ("grpc_address", "data_directory"):
        return option.default or "-"
    if option.field == "data_directory" and settings.database_url is not None:
        return "-"
    return str(getattr(settings, option.field))


def _masked(option: Option, given: str) -> str:
    if option.field == "database_url":
        return shown_url(given.strip())
    try:
        return shown_users(parse_users(given, option.variable))
    except BadUsers:
        return "(cannot be read)"


# Below, a stolen hash is tried too quickly; above, a login keeps a core busy for a second and more.
_SANE_COSTS = range(10, 15)
_READ_BY_OTHERS = 0o004


def check_users(settings: Settings) -> Iterator[CheckResult]:
    if settings.is_open:
        yield from _open(settings)
        return
    users = settings.users
    if settings.users_file is not None:
        try:
            users = read_users_file(settings.users_file, "PULSE_AUTH_USERS_FILE")
        except BadUsers as error:  # since the settings were read
            yield fail("users", str(error))
            return
        yield from _kept_private(settings.users_file, "users", "PULSE_AUTH_USERS_FILE")
    yield ok("users", f"{shown_users(users)}.")
    yield from _secrets(users)
    if settings.tls is None and not is_loopback(settings.grpc_address):
        yield warn(
            "users",
            f"Passwords would cross the network in plain text to {settings.grpc_address}. "
            "Set PULSE_TLS_CERT and PULSE_TLS_KEY, unless something in front of pulsed speaks TLS.",
        )


def check_tls(settings: Settings) -> Iterator[CheckResult]:
    if settings.tls is None:
        yield info("tls", "Off.")
        return
    from pulse_server.doors.tls import FilesChanged, read_key_pair

    try:
        pair = read_key_pair(settings.tls)
    except BadSettings as error:
        yield from (fail("tls", problem) for problem in error.problems)
        return
    except FilesChanged:
        yield fail("tls", "The certificate is being written to at this moment. Check again.")
        return
    names = ", ".join(pair.names) or pair.subject or "no name"
    validity = f"The certificate is for {names} and expires on {pair.expires_at:%Y-%m-%d}"
    left = pair.expires_at - datetime.now(UTC)
    if left < tuning.CERTIFICATE_WARNING:
        yield warn("tls", f"{validity}, in {left.days} days. Renew it; a running pulsed picks it up.")
    else:
        yield ok("tls", f"{validity}. {_who_must_show_one(settings.tls)}")
    yield from _kept_private(settings.tls.key, "tls", "PULSE_TLS_KEY")


def check_addresses(settings: Settings) -> Iterator[CheckResult]:
    yield from _port(settings.grpc_address, "gRPC", "PULSE_GRPC_ADDR")
    if settings.http_address is None:
        yield info("ports", "HTTP is off: no health checks, no metrics. PULSE_HTTP_ADDR turns it on.")
    elif settings.http_address.startswith("unix:"):
        yield from _socket(Path(settings.http_address.removeprefix("unix:")))
    else:
        yield from _port(settings.http_address, "HTTP", "PULSE_HTTP_ADDR")


def _open(settings: Settings) -> Iterator[CheckResult]:
    if is_loopback(settings.grpc_address):
        yield info("users", "None: everyone on this machine may do everything. Set PULSE_AUTH_USERS.")
    elif settings.tls is not None and settings.tls.client_ca is not None:
        yield info("users", "None: every holder of a certificate of PULSE_TLS_CLIENT_CA may do everything.")
    else:
        yield warn(
            "users",
            f"None, and {settings.grpc_address} can be reached from elsewhere: everyone who can connect may "
            "do everything. Set PULSE_AUTH_USERS, or listen on 127.0.0.1.",
        )


def _secrets(users: tuple[User, ...]) -> Iterator[CheckResult]:
    if plain := [user.name for user in users if not user.has_hash]:
        yield warn(
            "users",
            f"Plain passwords: {', '.join(plain)}. Every reader of this configuration has them; "
            "use bcrypt hashes, which reveal nothing.",
        )
    odd = [user for user in users if user.has_hash and user.bcrypt_cost not in _SANE_COSTS]
    if odd:
        costs = ", ".join(f"{user.name} ({user.bcrypt_cost})" for user in odd)
        yield warn(
            "users",
            f"Unusual bcrypt costs: {costs}. Below {_SANE_COSTS[0]} a stolen hash is guessed quickly; above "
            f"{_SANE_COSTS[-1]} each login takes seconds. 12 is usual.",
        )


def _who_must_show_one(tls: TlsFiles) -> str:
    if tls.client_ca is None:
        return "Callers need none."
    return "Callers must show one of PULSE_TLS_CLIENT_CA."


def _kept_private(file: Path, subject: str, variable: str) -> Iterator[CheckResult]:
    try:
        mode = file.stat().st_mode
    except OSError:
        return  # reported by the check that reads it
    if mode & _READ_BY_OTHERS:
        yield warn(subject, f"{variable} ({file}) can be read by everyone on this machine: chmod o-r {file}")


def _port(address: str, name: str, variable: str) -> Iterator[CheckResult]:
    try:
        probe(address, variable)
    except PortInUse as error:
        yield fail("ports", str(error))
    else:
        yield ok("ports", f"{name} could listen on {address}.")


def _socket(path: Path) -> Iterator[CheckResult]:
    if os.access(path.parent, os.W_OK | os.X_OK):
        yield ok("ports", f"HTTP could listen on the socket {path}.")
    else:
        yield fail(
            "ports", f"PULSE_HTTP_ADDR: no socket can be made in {path.parent}. Make it, or name another."
        )


# How long `pulsed check` waits for the database: a person is waiting for its output.
CHECK_PATIENCE = timedelta(seconds=2)

_CLOCKS_AGREE = timedelta(seconds=1)
# A queue's table bloats while a transaction is this old, and every claim gets slower.
_OLD_TRANSACTION = timedelta(hours=1)
_FORGOTTEN = timedelta(minutes=10)
# Names of roles in a sentence.
_ROLES_NAMED = 10


async def check_database(settings: Settings, dsn: str, *, migrates: bool) -> list[CheckResult]:
    return [finding async for finding in _findings(settings, dsn, migrates)]


async def _findings(settings: Settings, dsn: str, migrates: bool) -> AsyncIterator[CheckResult]:
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


def _pooler(settings: Settings, found: Inspection) -> Iterator[CheckResult]:
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


def _server(found: Inspection) -> Iterator[CheckResult]:
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


def _room(settings: Settings, found: Inspection) -> Iterator[CheckResult]:
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


async def _schema(dsn: str, found: Inspection, migrates: bool) -> AsyncIterator[CheckResult]:
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


def _other_roles(found: Inspection) -> Iterator[CheckResult]:
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


def _interface(found: Inspection) -> Iterator[CheckResult]:
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


def _onlookers(found: Inspection) -> Iterator[CheckResult]:
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


# ---------------------------------------------------------------- embedded
# The Postgres that pulsed would start itself: its programs and its directory.


def check_embedded(path: Path) -> Iterator[CheckResult]:
    """Creates and starts nothing."""
    directory = DataDirectory(path)
    try:
        identity = choose_identity(directory.path, directory.postgres)
        installation = choose_installation(directory.postgres, is_reachable=identity.can_reach)
        yield ok("database", f"Embedded PostgreSQL {installation.major}, from {installation.directory}.")
        _require_writable(directory.path)
        _require_free(directory.path)
    except EmbeddedError as error:
        yield fail("database", str(error))
        return
    if written_by_major(directory.postgres) is None:
        made = "would get" if directory.path.exists() else "would be made, with"
        yield info("database", f"{directory.path} {made} an empty database.")
    else:
        yield ok(
            "database", f"Its data is in {directory.path}; the schema is brought up to date at the start."
        )


def _require_writable(path: Path) -> None:
    existing = next(place for place in (path, *path.parents) if place.exists())
    if not existing.is_dir():
        raise DataDirectoryUnusable(path, f"{existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise DataDirectoryUnusable(path, f"{existing} cannot be written to")


def _require_free(path: Path) -> None:
    try:
        lock = open_own(path / "lock", os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataDirectoryUnusable(path, f"{error.strerror} ({error.filename})") from None
        return
    try:
        # A shared lock, and for an instant: two checks at the same time do not disturb each other.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 64, 0).partition(b"\n")[0]
        raise DataDirectoryInUse(path, "another pulsed", int(holder) if holder.isdigit() else None) from None
    finally:
        os.close(lock)


# ---------------------------------------------------------------- checking


def check(environ: Mapping[str, str], flags: Mapping[str, str], *, migrates: bool) -> int:
    """Print the settings and their problems. Returns 0 if pulsed would start and serve, else 1.

    Changes nothing, neither on this machine nor in the database.
    """
    findings = list(unknown_variables(environ))
    settings: Settings | None = None
    try:
        settings = read_settings({**environ, **flags})
    except BadSettings as error:
        findings += [fail("settings", problem) for problem in error.problems]
    else:
        findings.append(ok("settings", "Each of them can be read."))
    print("settings:", listed(environ, flags, settings), "", "checks:", sep="\n")
    if settings is not None:
        findings += _of_what_they_mean(settings, migrates)
    findings.sort(key=lambda finding: finding.subject != "settings")
    print(printed(findings), "", verdict(findings), sep="\n")
    return int(any(finding.level is Severity.FAIL for finding in findings))


def _of_what_they_mean(settings: Settings, migrates: bool) -> list[CheckResult]:
    return [
        *_guarded("users", lambda: check_users(settings)),
        *_guarded("tls", lambda: check_tls(settings)),
        *_guarded("ports", lambda: check_addresses(settings)),
        *_guarded("database", lambda: _of_the_database(settings, migrates)),
    ]


def _of_the_database(settings: Settings, migrates: bool) -> Iterable[CheckResult]:
    if settings.database_url is None:
        return check_embedded(settings.data_directory)
    return asyncio.run(check_database(settings, settings.database_url, migrates=migrates))


def _guarded(subject: str, run: Callable[[], Iterable[CheckResult]]) -> list[CheckResult]:
    """The findings of one check. A check that raises becomes a finding; later checks still run."""
    found: list[CheckResult] = []
    try:
        found.extend(run())
    except Exception as error:
        # Its type alone: its text may quote anything, a password included.
        found.append(
            fail(subject, f"This could not be checked ({type(error).__name__}), which is a bug in pulsed.")
        )
    return found
