"""The command `pulsed`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from pulse_server.domain.errors import PulseError
from pulse_server.embedded import EmbeddedError, EmbeddedPostgres
from pulse_server.logs import configure_logging, silence_grpc_core
from pulse_server.settings import BadSettings, Settings, read_settings

Result = TypeVar("Result")

_ENVIRONMENT = """\
environment:
  DB_HOST                    postgres:// URL of the database; unset: an embedded Postgres is started
  PULSE_DATA_DIR             where the embedded Postgres keeps its data ($XDG_DATA_HOME/pulse)
  PULSE_GRPC_ADDR            port, :port or host:port to listen on (127.0.0.1:50051)
  PULSE_LEASE_TTL            how long a worker may be silent before its jobs are taken back (30s)
  PULSE_HEARTBEAT_INTERVAL   how often workers are asked to beat (10s)
  PULSE_WATCHDOG_INTERVAL    how often lapsed leases are looked for (10s)
  PULSE_DISPATCH_INTERVAL    how long a job waits at the most if its wake-up is lost (500ms)
  PULSE_DRAIN_TIMEOUT        how long calls under way may take after SIGTERM (10s)
  PULSE_LOG_LEVEL            debug, info, warning or error (info)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 could not, 2 called wrongly."""
    options = _parser().parse_args(arguments)
    silence_grpc_core()
    from pulse_server.transport.grpc.server import PortInUse

    try:
        settings = read_settings(_environment(options))
        configure_logging(settings.log_level)
        if options.command == "migrate":
            return _migrate(settings, show_only=options.action == "status")
        return _serve(settings, migrate=options.migrate)
    except (BadSettings, EmbeddedError, PulseError, PortInUse) as error:
        print(f"pulsed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _serve(settings: Settings, *, migrate: bool) -> int:
    from pulse_server.app import serve

    with _database(settings) as dsn:
        # What was imported lives as long as the process: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        _run(lambda: serve(settings, dsn, migrate=migrate or settings.database_url is None))
    return 0


def _migrate(settings: Settings, *, show_only: bool) -> int:
    from pulse_server import tuning
    from pulse_server.postgres.database import wait_until_reachable
    from pulse_server.postgres.migrations.runner import apply_migrations, migration_status

    with _database(settings) as dsn:
        _run(lambda: wait_until_reachable(dsn, tuning.STARTUP_PATIENCE))
        if not show_only:
            applied = _run(lambda: apply_migrations(dsn))
            print(f"applied {', '.join(applied)}" if applied else "the schema is up to date")
            return 0
        for entry in _run(lambda: migration_status(dsn)):
            state = f"applied {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}" if entry.applied_at else "not applied"
            remark = "" if entry.is_known else "  (newer than this pulsed)"
            remark = "  (applied with other content)" if entry.is_changed else remark
            print(f"{entry.name:<24} {state}{remark}")
        return 0


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """The database to use for as long as the block lasts: the one that was named, or an embedded one."""
    if settings.database_url is not None:
        yield settings.database_url
    else:
        with EmbeddedPostgres(settings.data_directory) as cluster:
            yield cluster.dsn


def _run(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    try:
        import uvloop
    except ImportError:  # not on every platform; asyncio's own loop does
        return asyncio.run(main())
    return uvloop.run(main())


def _environment(options: argparse.Namespace) -> dict[str, str]:
    flags = {"PULSE_GRPC_ADDR": options.grpc_addr, "PULSE_DATA_DIR": options.data_dir}
    return {**os.environ, **{name: value for name, value in flags.items() if value is not None}}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulsed",
        description="The pulse server: keeps jobs in Postgres and hands them to workers over gRPC.",
        epilog=_ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pulsed {_version()}")
    parser.add_argument("--grpc-addr", metavar="ADDR", help="instead of PULSE_GRPC_ADDR")
    parser.add_argument("--data-dir", metavar="DIR", help="instead of PULSE_DATA_DIR")
    parser.add_argument(
        "--migrate", action="store_true", help="bring the schema of DB_HOST up to date before serving"
    )
    commands = parser.add_subparsers(dest="command", metavar="")
    migrate = commands.add_parser("migrate", help="bring the schema up to date, or show its state")
    migrate.add_argument("action", nargs="?", choices=["status"], help="show what is applied")
    return parser


def _version() -> str:
    try:
        return version("pulse-jobs")
    except PackageNotFoundError:
        return "(not installed: run from its sources)"


if __name__ == "__main__":
    sys.exit(main())
