"""The settings of one server, and how they are read, from the environment and the command line.

Every problem is reported, not only the first.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from pulse.topic_settings import Entries, Keep
from pulse_server.access.users import BadUsers, User, read_users_file
from pulse_server.base import tuning
from pulse_server.base.bounds import StepBounds
from pulse_server.embedded.directory import default_data_directory
from pulse_server.embedded.processes import EmbeddedError
from pulse_server.settings.options import (
    DEFAULT_PORT,
    EVERYWHERE,
    LOOPBACK,
    OPTIONS,
    Address,
    BadSettings,
    Option,
    is_loopback,
    parse_backoff,
)

_WHO_GETS_IN = frozenset({"users", "users_file"})


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With a client CA, callers have to show a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished jobs are kept. None: for ever."""

    completed: timedelta | None = tuning.RETENTION_COMPLETED
    canceled: timedelta | None = tuning.RETENTION_CANCELED
    dead_lettered: timedelta | None = tuning.RETENTION_DEAD_LETTERED

    @property
    def entries(self) -> dict[str, Keep]:
        """As settings of a topic."""
        kept = (self.completed, self.canceled, self.dead_lettered)
        names = ("keep_completed", "keep_canceled", "keep_dead_lettered")
        return {name: "forever" if span is None else span for name, span in zip(names, kept, strict=True)}


# How jobs run whose topic has no settings of its own.
DEFAULT_RUNS: Entries = {
    "max_attempts": tuning.MAX_ATTEMPTS,
    "backoff": parse_backoff(tuning.BACKOFF, "BACKOFF"),
    "max_crashes": tuning.MAX_CRASHES,
}

# How many steps a job may have, and of how many bytes.
DEFAULT_STEPS = StepBounds(tuning.MAX_STEPS, tuning.MAX_STEP_BYTES)


@dataclass(frozen=True, slots=True)
class Settings:
    grpc_address: str
    database_url: str | None = field(repr=False)  # None: the embedded Postgres, in data_directory
    data_directory: Path = Path()
    behind_pooler: bool = False
    http_address: str | None = None
    users: tuple[User, ...] = ()
    users_file: Path | None = None
    open_to_network: bool = False
    metrics_need_login: bool = False
    tls: TlsFiles | None = None
    reflection: bool = False
    processes: int = 1
    shares_port: bool = False  # no option: this is one of several processes, and its supervisor says so
    log_level: str = "info"
    lease_ttl: timedelta = tuning.LEASE_TTL
    heartbeat_interval: timedelta = tuning.HEARTBEAT_INTERVAL
    watchdog_interval: timedelta = tuning.WATCHDOG_INTERVAL
    dispatch_interval: timedelta = tuning.DISPATCH_INTERVAL
    drain_timeout: timedelta = tuning.DRAIN_TIMEOUT
    retention: Retention = Retention()
    retention_audit: timedelta | None = tuning.RETENTION_AUDIT
    retention_grace: timedelta = tuning.RETENTION_GRACE
    runs: Entries = field(default_factory=lambda: DEFAULT_RUNS)
    max_result_bytes: int = tuning.MAX_RESULT_BYTES
    steps: StepBounds = DEFAULT_STEPS
    max_workflow_jobs: int = tuning.MAX_WORKFLOW_JOBS

    def __post_init__(self) -> None:
        if problem := _lease_problem(self.lease_ttl, self.heartbeat_interval, self.watchdog_interval):
            raise BadSettings(problem)

    @property
    def most_connections(self) -> int:
        """How many connections to the database this configuration may hold at once."""
        return self.processes * tuning.connections_of_a_process(self.behind_pooler)

    @property
    def topics(self) -> Entries:
        """The settings of topics that have none of their own."""
        return {**self.runs, **self.retention.entries}

    @property
    def is_open(self) -> bool:
        """Whether every caller that can connect may do everything."""
        return not self.users and self.users_file is None


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings, or BadSettings with a sentence about each one that is wrong."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    refused: set[str] = set()
    for option in OPTIONS:
        if text := environ.get(option.variable, "").strip():
            try:
                values[option.field] = option.parse(text, option.variable)
            except BadSettings as error:
                problems += error.problems
                refused.add(option.field)
    if not {"database_url", "data_directory"} & (values.keys() | refused):
        try:
            values["data_directory"] = default_data_directory(environ)
        except EmbeddedError as error:
            problems.append(str(error))
    problems += _contradictions(values, refused)
    if problems:
        raise BadSettings(*problems)
    return _settings(values)


def _settings(values: dict[str, Any]) -> Settings:
    tls_files = [values.pop(f"tls_{part}", None) for part in ("certificate", "key", "client_ca")]
    kept = {
        status: values.pop(f"retention_{status}")
        for status in ("completed", "canceled", "dead_lettered")
        if f"retention_{status}" in values
    }
    runs = {name.removeprefix("run_"): values.pop(name) for name in [*values] if name.startswith("run_")}
    steps = StepBounds(
        values.pop("max_steps", DEFAULT_STEPS.steps), values.pop("max_step_bytes", DEFAULT_STEPS.bytes)
    )
    host = _default_host(values.keys())
    values["grpc_address"] = values.get("grpc_address", Address("", DEFAULT_PORT)).in_full(host)
    if "http_address" in values:
        values["http_address"] = values["http_address"].in_full(host)
    values.setdefault("database_url", None)
    tls = TlsFiles(*tls_files) if tls_files[0] else None
    return Settings(
        **values, tls=tls, retention=Retention(**kept), runs={**DEFAULT_RUNS, **runs}, steps=steps
    )


def _default_host(known: Set[str]) -> str:
    return EVERYWHERE if known & _WHO_GETS_IN else LOOPBACK


def _contradictions(values: Mapping[str, Any], refused: Set[str]) -> Iterator[str]:
    """Conflicts between settings that are valid alone. Refused settings do not count as missing."""
    known = values.keys() | refused
    if {"users", "users_file"} <= known:
        yield "PULSE_AUTH_USERS and PULSE_AUTH_USERS_FILE are both set: keep one of them."
    if "users_file" in values:
        try:
            read_users_file(values["users_file"], "PULSE_AUTH_USERS_FILE")
        except BadUsers as error:
            yield str(error)
    if ("tls_certificate" in known) != ("tls_key" in known):
        missing = "PULSE_TLS_KEY" if "tls_certificate" in known else "PULSE_TLS_CERT"
        yield (
            f"{missing} is not set: TLS needs both PULSE_TLS_CERT and PULSE_TLS_KEY. "
            "Half a key pair would leave the port open in plain text."
        )
    if "tls_client_ca" in known and not {"tls_certificate", "tls_key"} & known:
        yield "PULSE_TLS_CLIENT_CA needs PULSE_TLS_CERT and PULSE_TLS_KEY as well."
    if not refused & {"grpc_address", "http_address"} and "http_address" in values:
        host = _default_host(known)
        grpc_address = values.get("grpc_address", Address("", DEFAULT_PORT))
        if grpc_address.port and grpc_address.in_full(host) == values["http_address"].in_full(host):
            yield (
                f"PULSE_GRPC_ADDR and PULSE_HTTP_ADDR are both {grpc_address.in_full(host)}: "
                "give one of them another port."
            )
    if not known & (_WHO_GETS_IN | {"tls_client_ca"}) and not values.get("open_to_network"):
        yield from _open_to_network(values)
    if values.get("metrics_need_login"):
        if not known & _WHO_GETS_IN:
            yield (
                "PULSE_METRICS_AUTH is on, but there are no users: "
                "set PULSE_AUTH_USERS_FILE or PULSE_AUTH_USERS."
            )
        if "http_address" not in known:
            yield "PULSE_METRICS_AUTH is on, but PULSE_HTTP_ADDR is not set: there are no metrics."
    if not refused & {"lease_ttl", "heartbeat_interval", "watchdog_interval"}:
        problem = _lease_problem(
            values.get("lease_ttl", tuning.LEASE_TTL),
            values.get("heartbeat_interval", tuning.HEARTBEAT_INTERVAL),
            values.get("watchdog_interval", tuning.WATCHDOG_INTERVAL),
        )
        if problem:
            yield problem


def _open_to_network(values: Mapping[str, Any]) -> Iterator[str]:
    """No password is asked for: then only this machine may connect."""
    address = values.get("grpc_address", Address("", DEFAULT_PORT)).in_full(LOOPBACK)
    if not is_loopback(address):
        yield (
            f"PULSE_GRPC_ADDR is {address}, which others can reach, and there are no users: everyone who "
            "connects could do everything. Set PULSE_AUTH_USERS_FILE, or listen on 127.0.0.1. If an open "
            "server is what you want, set PULSE_INSECURE_OPEN_TO_NETWORK=on."
        )


def _lease_problem(lease_ttl: timedelta, heartbeat: timedelta, watchdog: timedelta) -> str | None:
    if heartbeat + watchdog < lease_ttl:
        return None
    return (
        f"PULSE_LEASE_TTL ({lease_ttl.total_seconds():g}s) must be longer than "
        f"PULSE_HEARTBEAT_INTERVAL + PULSE_WATCHDOG_INTERVAL ({(heartbeat + watchdog).total_seconds():g}s): "
        "otherwise a single late heartbeat costs a healthy worker its job."
    )


_WIDTH = 100


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulsed",
        usage="pulsed [--migrate] [settings]\n       pulsed migrate [status] | check | psql [settings]\n"
        "       pulsed grants [--enqueue ROLE] [--complete ROLE]",
        description="The pulse server: keeps jobs in Postgres and hands them to workers over gRPC.",
        epilog="\n".join(_settings_help()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # A setting added later must not change the meaning of an abbreviation in a unit file.
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit"
    )
    _add_migrate(parser, "bring the schema of DB_HOST up to date before serving")
    _add_settings(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    about = "bring the schema up to date, or show its state"
    migrate = _add_command(commands, "migrate", about, usage="pulsed migrate [status] [settings]")
    migrate.add_argument("action", nargs="?", choices=["status"], help="show what is applied")
    _add_settings(migrate)
    about = "report what is wrong with this configuration, without serving and without changing anything"
    check = _add_command(commands, "check", about, usage="pulsed check [--migrate] [settings]")
    about = "open the embedded database of a pulsed that runs, with psql"
    psql = _add_command(commands, "psql", about, usage="pulsed psql [settings] [-- OPTIONS OF PSQL]")
    psql.add_argument("arguments", nargs="*", help="for psql, after --: -- -c 'SELECT 1'")
    _add_settings(psql)
    _add_migrate(check, "as if pulsed were started with --migrate")
    _add_settings(check)
    about = "print the statements that let roles of applications enqueue or complete jobs; needs no database"
    usage = "pulsed grants [--enqueue ROLE]... [--complete ROLE]..."
    grants = commands.add_parser(
        "grants", prog="pulsed grants", help=about, usage=usage, description=about, allow_abbrev=False
    )
    for right, may in (("enqueue", "enqueue jobs"), ("complete", "complete the jobs that it runs")):
        grants.add_argument(
            f"--{right}",
            metavar="ROLE",
            type=_role,
            action="append",
            default=[],
            help=f"a role that may {may}",
        )
    grants.set_defaults(refuse=grants.error)
    return parser


def environment(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as they are once the flags have been applied."""
    return {**environ, **given_flags(options)}


def given_flags(options: argparse.Namespace) -> dict[str, str]:
    """The values given on the command line, by variable."""
    names = (option.variable for option in OPTIONS)
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def granted_roles(options: argparse.Namespace) -> dict[str, list[str]]:
    """The roles of `pulsed grants`, by right. Ends the process if there are none."""
    roles = {"enqueue": options.enqueue, "complete": options.complete}
    if not any(roles.values()):
        options.refuse("name a role with --enqueue or --complete")
    return roles


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, usage: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=about,
        usage=usage,
        description=about,
        epilog="The settings are those of `pulsed --help`.",
        allow_abbrev=False,
    )


def _role(name: str) -> str:
    # Postgres reads "public" as PUBLIC, also in quotes.
    if name.lower() in ("", "public"):
        raise argparse.ArgumentTypeError("name one role: PUBLIC is every role of the database")
    return name


def _add_migrate(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("--migrate", action="store_true", default=argparse.SUPPRESS, help=about)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    # No default: a flag may stand before or after the command, and the second parser must not undo the first.
    for option in OPTIONS:
        if option.flag is not None:
            parser.add_argument(
                option.flag,
                dest=option.variable,
                metavar=option.metavar,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


def _settings_help() -> Iterator[str]:
    yield "settings, by variable or by flag; a flag wins. Durations are written 500ms, 30s, 5m, 1h or 7d."
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        yield ""
        yield f"{group}:"
        for option in options:
            yield f"  {option.variable:<30} {_flag(option)}"
            about = f"{option.help}{f' ({option.default})' if option.default else ''}"
            yield from textwrap.wrap(about, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _flag(option: Option) -> str:
    if option.flag is None:
        # On a command line everyone on the machine could read it.
        return "(no flag: it holds a secret)"
    return f"{option.flag} {option.metavar}"


class _ShowVersion(argparse.Action):
    """Finds out when it is asked: that takes longer than everything else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("pulse-jobs")
        except PackageNotFoundError:
            number = "(not installed: run from its sources)"
        print(f"pulsed {number}")
        parser.exit()
