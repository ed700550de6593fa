"""The command `pulsed`. Its logs are one JSON object per line, on standard error.

Freed memory is returned to the system, and the limit of open files is raised.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from pulse_server.access.users import BadUsers
from pulse_server.base.errors import PulseError
from pulse_server.doors.addresses import PortInUse
from pulse_server.embedded import EmbeddedError, EmbeddedPostgres, kept, psql_command
from pulse_server.settings import BadSettings, Settings, read_settings
from pulse_server.settings.reading import environment, given_flags, granted_roles, parser
from pulse_server.supervisor import Lifeline, ProcessFailed, restarts, supervise

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON. The message is the event's name, and `extra` holds its fields.

    With several processes behind one port, each line has the number of its process.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **self._process,
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD_FIELDS)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def silence_grpc_core() -> None:
    """Keep grpc's core from writing lines that are no JSON. Works only before grpc is first imported."""
    # A parent process that uses the SDK sets ERROR. An operator who wants more sets another value.
    if os.environ.get("GRPC_VERBOSITY", "ERROR") == "ERROR":
        os.environ["GRPC_VERBOSITY"] = "NONE"


class _WholeLines(logging.Handler):
    """Writes each line with one system call: a buffer would cut a long one where a sibling may write."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            rest = f"{self.format(record)}\n".encode(errors="backslashreplace")
            while rest:
                rest = rest[os.write(2, rest) :]
        except OSError:  # standard error is closed
            pass
        except Exception:
            self.handleError(record)


def configure_logging(level: str = "info", process: int | None = None) -> None:
    """Log from this level on. `process` is the number of this one among several that share standard error."""
    handler = logging.StreamHandler(sys.stderr) if process is None else _WholeLines()
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # grpc's own logger repeats, at error level, errors that a boundary has already handled.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


# glibc's mallopt, and its parameters.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Blocks of this size go back to the system when they are freed. By default glibc raises the bound
# to the largest block ever freed, and keeps free blocks that lie between used ones.
_LARGE_BLOCK = 512 * 1024
_KEPT_AT_THE_TOP = 16 * 1024 * 1024
# Few threads allocate at the same time: Python's own and gRPC's.
_ARENAS = 2


def give_back_large_blocks() -> None:
    """Have large blocks returned to the system. Does nothing where the allocator is another one."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_THE_TOP)
        mallopt(_M_ARENA_MAX, _ARENAS)


def raise_open_files() -> None:
    """Allow as many open files as the system lets this process have: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have a lower bound than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# New objects after which the garbage collector runs. With the default, a batch of a thousand jobs would
# trigger it twice.
YOUNG_OBJECTS = 20_000
# Connections of the embedded Postgres: enough for a few processes, and some to spare for psql.
EMBEDDED_LEAST_CONNECTIONS = 100
EMBEDDED_SPARE_CONNECTIONS = 20

log = logging.getLogger(__name__)

Result = TypeVar("Result")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 could not, 2 called wrongly."""
    lifeline = Lifeline.taken_from(os.environ)
    options = parser().parse_args(arguments)
    if options.command == "grants":
        from pulse_server.database.rights import grants

        print("\n".join(grants(granted_roles(options))))
        return 0
    silence_grpc_core()
    migrate = getattr(options, "migrate", False)
    try:
        failpoints = _armed_failpoints(os.environ)
        if options.command == "check":
            from pulse_server.checks import check

            return check(os.environ, given_flags(options), migrates=migrate)
        environ = environment(options, os.environ)
        settings = read_settings(environ)
        configure_logging(settings.log_level, lifeline.number if lifeline is not None else None)
        if failpoints and lifeline is None:
            log.warning("failpoints_armed", extra={"failpoints": failpoints})
        if options.command == "psql":
            return _open_psql(settings, options.arguments)
        if options.command == "migrate":
            return _migrate(settings, show_only=options.action == "status")
        if lifeline is not None:
            return _serve_beside_others(settings, lifeline)
        return _serve(settings, environ, migrate=migrate or settings.database_url is None)
    except (BadSettings, BadUsers, EmbeddedError, PulseError, PortInUse, ProcessFailed) as error:
        return _fail(str(error).splitlines(), lifeline)
    except KeyboardInterrupt:
        return 130


def _armed_failpoints(environ: Mapping[str, str]) -> list[str]:
    """The failpoints that a test armed in this process. BadSettings if they cannot be read."""
    if not environ.get("PULSE_FAILPOINTS"):
        return []  # and spare the supervisor the SDK, with all of gRPC
    try:
        from pulse import failpoints
    except ValueError as error:
        raise BadSettings(str(error)) from None
    return failpoints.armed()


def _serve(settings: Settings, environ: Mapping[str, str], *, migrate: bool) -> int:
    _tell_unknown_variables(environ)
    _tell_ignored_parameters(settings)
    _check_key_pair(settings)
    with _database(settings, is_kept=True) as dsn:
        _run(lambda: _prepare(settings, dsn, migrate=migrate))
        if settings.processes > 1:
            return supervise(settings, environ, dsn)
        _serve_here(settings, dsn)
    return 0


def _open_psql(settings: Settings, arguments: Sequence[str]) -> int:
    """Become psql."""
    if settings.database_url is not None:
        raise BadSettings(
            "`pulsed psql` opens the embedded database, and DB_HOST names another one: give psql its address."
        )
    command = [*psql_command(settings.data_directory), *arguments]
    os.execv(command[0], command)


def _serve_beside_others(settings: Settings, lifeline: Lifeline) -> int:
    """Be one of the processes that a supervisor started; it has seen to the database."""
    assert settings.database_url is not None
    _serve_here(replace(settings, shares_port=True), settings.database_url, lifeline)
    return 0


def _serve_here(settings: Settings, dsn: str, lifeline: Lifeline | None = None) -> None:
    # Imported modules live as long as the process: keep the collector from walking them each time.
    gc.disable()
    give_back_large_blocks()
    raise_open_files()
    from pulse_server.serving import serve

    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()
    _run(lambda: serve(settings, dsn, lifeline))


def _tell_unknown_variables(environ: Mapping[str, str]) -> None:
    """Log variables that look like a setting: a misspelled setting would go unnoticed."""
    from pulse_server.checks import unknown_variables

    for finding in unknown_variables(environ):
        log.warning("setting_unknown", extra={"hint": finding.sentence})


def _tell_ignored_parameters(settings: Settings) -> None:
    """Log, once, the parameters of DB_HOST that have no effect."""
    from pulse_server.database.urls import read_database_url

    if settings.database_url is None or not (ignored := read_database_url(settings.database_url).ignored):
        return
    facts = {
        "parameters": [entry.name for entry in ignored],
        "hint": f"{'; '.join(map(str, ignored))}.",
    }
    if any(entry.is_missed for entry in ignored):
        log.warning("database_parameters_ignored", extra=facts)
    else:
        log.info("database_parameters_ignored", extra=facts)


def _check_key_pair(settings: Settings) -> None:
    """Refuse a certificate that cannot serve before the schema is touched."""
    if settings.tls is not None:
        from pulse_server.doors.tls import FilesChanged, read_key_pair

        with suppress(FilesChanged):  # it is being renewed at this moment; the server reads it again anyway
            read_key_pair(settings.tls)


async def _prepare(settings: Settings, dsn: str, *, migrate: bool) -> None:
    """Return once the database answers and its schema is right."""
    from pulse_server.database.rights import (
        STARTUP_PATIENCE,
        Purpose,
        require_rights,
        through_outages,
        wait_until_reachable,
        warn_of_low_limits,
    )
    from pulse_server.database.schema import (
        apply_migrations,
        migration_connector,
        opened,
        require_current_schema,
    )

    async def look() -> None:
        async with opened(migration_connector(dsn)) as connection:
            await require_rights(connection, Purpose.SERVE)
            if not settings.behind_pooler:  # a pooler limits the connections itself
                await warn_of_low_limits(connection, settings.most_connections)
        if not migrate:
            await require_current_schema(dsn)

    await wait_until_reachable(dsn, STARTUP_PATIENCE)
    if migrate:
        await through_outages(dsn, partial(apply_migrations, dsn))
    await through_outages(dsn, look)


def _migrate(settings: Settings, *, show_only: bool) -> int:
    from pulse_server.database.rights import STARTUP_PATIENCE, through_outages, wait_until_reachable
    from pulse_server.database.schema import apply_migrations, function_status, migration_status

    _tell_ignored_parameters(settings)
    with _database(settings) as dsn:
        _run(lambda: wait_until_reachable(dsn, STARTUP_PATIENCE))
        if not show_only:
            applied = _run(lambda: through_outages(dsn, partial(apply_migrations, dsn)))
            print(f"applied {', '.join(applied)}" if applied else "the schema is up to date")
            return 0
        for entry in _run(lambda: migration_status(dsn)):
            state = f"applied {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}" if entry.applied_at else "not applied"
            remark = "" if entry.is_known else "  (newer than this pulsed)"
            remark = "  (applied with other content)" if entry.is_changed else remark
            print(f"{entry.name:<24} {state}{remark}")
        outdated = _run(lambda: function_status(dsn))
        state = f"not applied: {', '.join(outdated)}" if outdated else "applied"
        print(f"{'functions':<24} {state}")
        return 0


@contextmanager
def _database(settings: Settings, *, is_kept: bool = False) -> Iterator[str]:
    """The URL of the database for the length of the block: the configured or an embedded one.

    An embedded one that is kept is started again when it ends. If it cannot be, this process drains.
    """
    if settings.database_url is not None:
        yield settings.database_url
        return
    connections = max(EMBEDDED_LEAST_CONNECTIONS, settings.most_connections + EMBEDDED_SPARE_CONNECTIONS)
    with EmbeddedPostgres(settings.data_directory, settings={"max_connections": str(connections)}) as cluster:
        give_up = partial(os.kill, os.getpid(), signal.SIGTERM)
        with kept(cluster, restarts(), give_up) if is_kept else nullcontext():
            yield cluster.dsn


def _run(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    try:
        import uvloop
    except ImportError:  # not on every platform; asyncio's own loop does
        return asyncio.run(main())
    return uvloop.run(main())


def _fail(sentences: Sequence[str], lifeline: Lifeline | None) -> int:
    if lifeline is not None:
        # The supervisor prints it once, instead of each of its processes.
        lifeline.report_failed(sentences)
        return 1
    for sentence in sentences:
        print(f"pulsed: {sentence}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
