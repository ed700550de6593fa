"""What an operator sets, from the environment and the command line. Flags win over the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pulse_server import tuning
from pulse_server.embedded.directory import default_data_directory

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 50051
_LOG_LEVELS = ("debug", "info", "warning", "error")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SHORTEST_SECONDS = 0.001  # a shorter tick would spin
_LONGEST_SECONDS = 8760 * 3600.0
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class BadSettings(Exception):
    """A setting is wrong; the sentence names it and tells what it takes."""


@dataclass(frozen=True, slots=True)
class Settings:
    grpc_address: str
    database_url: str | None  # None: the embedded Postgres, in data_directory
    data_directory: Path = Path()
    log_level: str = "info"
    lease_ttl: timedelta = tuning.LEASE_TTL
    heartbeat_interval: timedelta = tuning.HEARTBEAT_INTERVAL
    watchdog_interval: timedelta = tuning.WATCHDOG_INTERVAL
    dispatch_interval: timedelta = tuning.DISPATCH_INTERVAL
    drain_timeout: timedelta = tuning.DRAIN_TIMEOUT

    def __post_init__(self) -> None:
        if self.heartbeat_interval + self.watchdog_interval >= self.lease_ttl:
            raise BadSettings(
                f"PULSE_LEASE_TTL ({self.lease_ttl.total_seconds():g}s) must be longer than "
                f"PULSE_HEARTBEAT_INTERVAL + PULSE_WATCHDOG_INTERVAL "
                f"({(self.heartbeat_interval + self.watchdog_interval).total_seconds():g}s): "
                "otherwise a single late heartbeat costs a healthy worker its job."
            )


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings, or BadSettings with a sentence about the first one that is wrong."""

    def span(name: str, default: timedelta) -> timedelta:
        return parse_duration(environ[name], name) if environ.get(name) else default

    database_url = _database_url(environ.get("DB_HOST", ""))
    return Settings(
        grpc_address=parse_address(environ.get("PULSE_GRPC_ADDR", "")),
        database_url=database_url,
        data_directory=default_data_directory(environ) if database_url is None else Path(),
        log_level=_log_level(environ.get("PULSE_LOG_LEVEL") or "info"),
        lease_ttl=span("PULSE_LEASE_TTL", tuning.LEASE_TTL),
        heartbeat_interval=span("PULSE_HEARTBEAT_INTERVAL", tuning.HEARTBEAT_INTERVAL),
        watchdog_interval=span("PULSE_WATCHDOG_INTERVAL", tuning.WATCHDOG_INTERVAL),
        dispatch_interval=span("PULSE_DISPATCH_INTERVAL", tuning.DISPATCH_INTERVAL),
        drain_timeout=span("PULSE_DRAIN_TIMEOUT", tuning.DRAIN_TIMEOUT),
    )


def parse_duration(text: str, name: str) -> timedelta:
    """'500ms', '30s', '5m', '1h', or bare seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _SECONDS_OF[match[2]] if match else 0.0
    if not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        raise BadSettings(
            f"{name} is {text!r}: give a duration such as 500ms, 30s, 5m or 1h, from 1ms to 8760h."
        )
    return timedelta(seconds=seconds)


def parse_address(text: str) -> str:
    """A port, ':port' or 'host:port', as 'host:port'. Without a host it stays on this machine."""
    text = text.strip()
    if not text:
        return f"{DEFAULT_HOST}:{DEFAULT_PORT}"
    host, separator, port = text.rpartition(":")
    if not separator and not port.isdecimal():
        host, port = text, str(DEFAULT_PORT)
    if not port.isdecimal() or int(port) > 65535:
        raise BadSettings(f"PULSE_GRPC_ADDR is {text!r}: give a port, :port or host:port.")
    return f"{host or DEFAULT_HOST}:{port}"


def _database_url(text: str) -> str | None:
    if not text.strip():
        return None
    if not text.startswith(("postgres://", "postgresql://")):
        raise BadSettings(
            "DB_HOST must be a URL such as postgres://user:password@host:5432/database; "
            "leave it out to run the embedded Postgres."
        )
    return text.strip()


def _log_level(text: str) -> str:
    level = text.strip().lower()
    if level not in _LOG_LEVELS:
        raise BadSettings(f"PULSE_LOG_LEVEL is {text!r}: give one of {', '.join(_LOG_LEVELS)}.")
    return level
