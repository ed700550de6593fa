"""The options of pulsed, and how their texts become values."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pulse.topic_settings import BACKOFF, Backoff
from pulse_server.access.users import BadUsers, User, parse_users
from pulse_server.base import bounds, tuning
from pulse_server.base.bounds import MOST_STEP_BYTES, MOST_STEPS, MOST_WORKFLOW_JOBS
from pulse_server.database.urls import BadConnectionString, read_database_url

# ---------------------------------------------------------------- parsing
# Texts to values. Each function names the setting in the sentence that it raises, and never a secret.

DEFAULT_PORT = 50051
LOOPBACK = "127.0.0.1"
EVERYWHERE = "[::]"

_LOG_LEVELS = ("debug", "info", "warning", "error")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SHORTEST = timedelta(milliseconds=1)  # a shorter tick would spin
_LONGEST = timedelta(days=365)
_LONGEST_RETENTION = timedelta(days=3650)
_YES = frozenset({"1", "on", "true", "yes"})
_NO = frozenset({"0", "off", "false", "no"})
_MOST_PROCESSES = 64
_SIZE = re.compile(r"(\d+)(k|m)?(?:i?b)?")
_BYTES_OF = {None: 1, "k": 1024, "m": 1024 * 1024}
_HOST = re.compile(r"[\w.-]*|\[[0-9A-Fa-f:.]+(%\w+)?\]")
_UNIX = "unix:"


class BadSettings(Exception):
    """Settings are wrong; each problem is a sentence that names the setting and the values it takes."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Address(NamedTuple):
    """Where to listen. The default host depends on access: all callers, or known users only."""

    host: str
    port: int

    def in_full(self, default_host: str) -> str:
        return f"{self.host or default_host}:{self.port}"


class UnixAddress(NamedTuple):
    """A unix socket to listen on; every process that may open the file may connect."""

    path: str

    def in_full(self, _default_host: str) -> str:
        return f"{_UNIX}{self.path}"


def parse_duration(text: str, name: str, *, longest: timedelta = _LONGEST) -> timedelta:
    """'500ms', '30s', '5m', '1h', '7d', or bare seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _SECONDS_OF[match[2]] if match else 0.0
    if not _SHORTEST.total_seconds() <= seconds <= longest.total_seconds():
        raise BadSettings(
            f"{name} is {text!r}: give a duration such as 500ms, 30s, 5m, 1h or 7d, "
            f"from 1ms to {longest.days}d."
        )
    return timedelta(seconds=seconds)


def parse_retention(text: str, name: str) -> timedelta | None:
    """A duration, or 'forever'."""
    if text.strip().lower() == "forever":
        return None
    try:
        return parse_duration(text, name, longest=_LONGEST_RETENTION)
    except BadSettings as error:
        raise BadSettings(f"{error} Or 'forever', to delete nothing.") from None


def parse_grace(text: str, name: str) -> timedelta:
    """A duration, or 0."""
    return timedelta() if text.strip() in ("0", "0s") else parse_duration(text, name)


def parse_address(
    text: str, name: str = "PULSE_GRPC_ADDR", default_port: int | None = DEFAULT_PORT
) -> Address:
    """A port, ':port' or 'host:port', or a host alone where the port has a default."""
    text = text.strip()
    host, separator, port = text.rpartition(":")
    is_host_alone = text.endswith("]") or (not separator and not port.isdecimal())
    if is_host_alone and default_port is not None:
        host, port = text, str(default_port)
    if not port.isdecimal() or int(port) > 65535 or not _HOST.fullmatch(host):
        raise BadSettings(
            f"{name} is {text!r}: give a port, :port or host:port; "
            "an IPv6 address goes into brackets, as in [::1]:6000."
        )
    return Address(host, int(port))


def parse_http_address(text: str, name: str) -> Address | UnixAddress:
    """As for gRPC but without a default port, or 'unix:/path'."""
    path = text.strip().removeprefix(_UNIX)
    if path != text.strip():
        if not path.startswith("/"):
            raise BadSettings(f"{name} is {text!r}: after unix: comes the absolute path of the socket.")
        return UnixAddress(path)
    return parse_address(text, name, default_port=None)


def parse_database_url(text: str, name: str) -> str:
    """A URL or key=value pairs, as libpq takes them. Returned as it was written."""
    try:
        read_database_url(text)
    except BadConnectionString as error:
        raise BadSettings(f"{name} {error}") from None
    return text.strip()


def parse_log_level(text: str, name: str) -> str:
    level = text.strip().lower()
    if level not in _LOG_LEVELS:
        raise BadSettings(f"{name} is {text!r}: give one of {', '.join(_LOG_LEVELS)}.")
    return level


def parse_switch(text: str, name: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise BadSettings(f"{name} is {text!r}: give on or off.")
    return word in _YES


def parse_user_list(text: str, name: str) -> tuple[User, ...]:
    try:
        return parse_users(text, name)
    except BadUsers as error:
        raise BadSettings(str(error)) from None


def parse_processes(text: str, name: str) -> int:
    return _parse_count(text, name, _MOST_PROCESSES)


def parse_attempts(text: str, name: str) -> int:
    return _parse_count(text, name, bounds.MAX_ATTEMPTS)


def parse_steps(text: str, name: str) -> int:
    return _parse_count(text, name, MOST_STEPS)


def parse_workflow_jobs(text: str, name: str) -> int:
    return _parse_count(text, name, MOST_WORKFLOW_JOBS)


def parse_result_size(text: str, name: str) -> int:
    """'65536' or '64K', up to the largest payload of a job."""
    return _parse_size(text, name, bounds.MAX_PAYLOAD_BYTES)


def parse_step_size(text: str, name: str) -> int:
    """'65536' or '64K', up to the largest step that fits into an answer."""
    return _parse_size(text, name, MOST_STEP_BYTES)


def _parse_size(text: str, name: str, most: int) -> int:
    match = _SIZE.fullmatch(text.strip().lower())
    size = int(match[1]) * _BYTES_OF[match[2]] if match else 0
    if not 1 <= size <= most:
        longest = most // (1024 * 1024)
        raise BadSettings(f"{name} is {text!r}: give a size such as 65536, 64K or 1M, from 1 to {longest}M.")
    return size


def parse_backoff(text: str, name: str) -> Backoff:
    """'first=2s,factor=3,longest=6h,jitter=0.2'; the last three may be left out."""
    try:
        backoff = BACKOFF.parse(text)
        BACKOFF.check(backoff)
    except ValueError:
        raise BadSettings(
            f"{name} is {text!r}: give first=2s,factor=3,longest=6h,jitter=0.2, with a factor from 1 to 100, "
            "a jitter from 0 to 1, and longest no shorter than first. All but first may be left out."
        ) from None
    return backoff


def _parse_count(text: str, name: str, most: int) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= most:
        raise BadSettings(f"{name} is {text!r}: give a number from 1 to {most}.")
    return int(text)


def parse_path(text: str, name: str) -> Path:
    try:
        return Path(text.strip()).expanduser()
    except RuntimeError:
        raise BadSettings(f"{name} is {text!r}: there is no such home directory.") from None


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to host:port. A name other than localhost may lead anywhere."""
    if address.startswith(_UNIX):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def written(span: timedelta) -> str:
    """The duration as an option takes it: 7d, 30s, 500ms."""
    seconds = span.total_seconds()
    if seconds >= 86400 and seconds % 86400 == 0:
        return f"{seconds / 86400:g}d"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


# ---------------------------------------------------------------- an option
# The type of an option of pulsed.


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `parse` takes the text and the option's name, and raises BadSettings."""

    field: str
    variable: str
    group: str
    help: str
    parse: Callable[[str, str], Any]
    default: str = ""
    """As an operator would write it. Empty: no default, or it depends on other settings."""
    metavar: str = ""
    is_secret: bool = False
    """Never printed, and has no flag: every user of the machine can read a command line."""

    @property
    def flag(self) -> str | None:
        if self.is_secret:
            return None
        return "--" + self.variable.removeprefix("PULSE_").lower().replace("_", "-")


# ---------------------------------------------------------------- options
# Every option of pulsed: its variable, flag, default and purpose. `--help` prints it.

OPTIONS: tuple[Option, ...] = (
    # --- where
    Option(
        "database_url",
        "DB_HOST",
        "database",
        "postgres:// URL, or key=value pairs; several hosts follow a failover; unset: an embedded Postgres",
        parse_database_url,
        metavar="URL",
        is_secret=True,
    ),
    Option(
        "behind_pooler",
        "PULSE_DB_POOLER",
        "database",
        "DB_HOST is a PgBouncer in transaction mode: no LISTEN, no session settings, nothing prepared",
        parse_switch,
        "off",
        "on|off",
    ),
    Option(
        "data_directory",
        "PULSE_DATA_DIR",
        "database",
        "where the embedded Postgres keeps its data; without XDG_DATA_HOME: ~/.local/share/pulse",
        parse_path,
        "$XDG_DATA_HOME/pulse",
        "DIR",
    ),
    Option(
        "grpc_address",
        "PULSE_GRPC_ADDR",
        "doors",
        "port, :port or host:port for gRPC; without a host: this machine only, everywhere if there are users",
        parse_address,
        str(DEFAULT_PORT),
        "ADDR",
    ),
    Option(
        "http_address",
        "PULSE_HTTP_ADDR",
        "doors",
        "the same for /healthz, /readyz and /metrics, or unix:/path; unset: no HTTP",
        parse_http_address,
        metavar="ADDR",
    ),
    Option(
        "users",
        "PULSE_AUTH_USERS",
        "doors",
        "user:password[:role], comma-separated; a password that starts with $2 is a bcrypt hash; unset: open",
        parse_user_list,
        metavar="USERS",
        is_secret=True,
    ),
    Option(
        "users_file",
        "PULSE_AUTH_USERS_FILE",
        "doors",
        "the same from a file, one user a line, read again when it changes",
        parse_path,
        metavar="FILE",
    ),
    Option(
        "open_to_network",
        "PULSE_INSECURE_OPEN_TO_NETWORK",
        "doors",
        "without users, listen on an address that others can reach: everyone who connects may do everything",
        parse_switch,
        "off",
        "on|off",
    ),
    Option(
        "metrics_need_login",
        "PULSE_METRICS_AUTH",
        "doors",
        "let only these users read /metrics",
        parse_switch,
        "off",
        "on|off",
    ),
    Option(
        "tls_certificate",
        "PULSE_TLS_CERT",
        "doors",
        "PEM file with the certificate chain; with PULSE_TLS_KEY, turns TLS on",
        parse_path,
        metavar="FILE",
    ),
    Option(
        "tls_key",
        "PULSE_TLS_KEY",
        "doors",
        "PEM file with its private key",
        parse_path,
        metavar="FILE",
    ),
    Option(
        "tls_client_ca",
        "PULSE_TLS_CLIENT_CA",
        "doors",
        "PEM file with the authorities whose client certificates are asked for (mutual TLS)",
        parse_path,
        metavar="FILE",
    ),
    Option(
        "reflection",
        "PULSE_GRPC_REFLECTION",
        "doors",
        "let tools such as grpcurl read the contract from the server",
        parse_switch,
        "off",
        "on|off",
    ),
    # --- how
    Option(
        "processes",
        "PULSE_PROCESSES",
        "running",
        "how many server processes share the port",
        parse_processes,
        "1",
        "N",
    ),
    Option(
        "log_level",
        "PULSE_LOG_LEVEL",
        "running",
        "debug, info, warning or error",
        parse_log_level,
        "info",
        "LEVEL",
    ),
    Option(
        "drain_timeout",
        "PULSE_DRAIN_TIMEOUT",
        "running",
        "how long calls under way may take after SIGTERM",
        parse_duration,
        written(tuning.DRAIN_TIMEOUT),
        "DURATION",
    ),
    Option(
        "lease_ttl",
        "PULSE_LEASE_TTL",
        "leases",
        "how long a worker may be silent before its jobs are taken back",
        parse_duration,
        written(tuning.LEASE_TTL),
        "DURATION",
    ),
    Option(
        "heartbeat_interval",
        "PULSE_HEARTBEAT_INTERVAL",
        "leases",
        "how often workers are asked to beat",
        parse_duration,
        written(tuning.HEARTBEAT_INTERVAL),
        "DURATION",
    ),
    Option(
        "watchdog_interval",
        "PULSE_WATCHDOG_INTERVAL",
        "leases",
        "how often expired leases are reaped",
        parse_duration,
        written(tuning.WATCHDOG_INTERVAL),
        "DURATION",
    ),
    Option(
        "dispatch_interval",
        "PULSE_DISPATCH_INTERVAL",
        "leases",
        "how long a job waits at the most if its wake-up is lost",
        parse_duration,
        written(tuning.DISPATCH_INTERVAL),
        "DURATION",
    ),
    Option(
        "run_max_attempts",
        "PULSE_MAX_ATTEMPTS",
        "runs",
        "attempts of jobs that are submitted without their own number",
        parse_attempts,
        str(tuning.MAX_ATTEMPTS),
        "N",
    ),
    Option(
        "run_backoff",
        "PULSE_BACKOFF",
        "runs",
        "delays between attempts: the first, the factor of each next one, the longest, their spread",
        parse_backoff,
        tuning.BACKOFF,
        metavar="DELAYS",
    ),
    Option(
        "run_attempt_timeout",
        "PULSE_ATTEMPT_TIMEOUT",
        "runs",
        "how long one attempt may take; unset: no limit",
        parse_duration,
        metavar="DURATION",
    ),
    Option(
        "run_max_crashes",
        "PULSE_MAX_CRASHES",
        "runs",
        "after so many lost leases a job is a dead letter, whatever its attempts",
        parse_attempts,
        str(tuning.MAX_CRASHES),
        "N",
    ),
    Option(
        "max_result_bytes",
        "PULSE_MAX_RESULT",
        "runs",
        "how large what a handler returns may be, in bytes or as 64K; a larger result is a dead letter",
        parse_result_size,
        f"{tuning.MAX_RESULT_BYTES // 1024}K",
        "SIZE",
    ),
    Option(
        "max_steps",
        "PULSE_MAX_STEPS",
        "runs",
        "how many steps a job may have, and how many signals",
        parse_steps,
        str(tuning.MAX_STEPS),
        "N",
    ),
    Option(
        "max_step_bytes",
        "PULSE_MAX_STEP_BYTES",
        "runs",
        "how large the steps of a job may be together, and its signals (1M at the most), in bytes or as 1M",
        parse_step_size,
        f"{tuning.MAX_STEP_BYTES // 1024}K",
        "SIZE",
    ),
    Option(
        "max_workflow_jobs",
        "PULSE_MAX_WORKFLOW_JOBS",
        "runs",
        "how many jobs a workflow may have; it may have ten times as many waits of one job for another",
        parse_workflow_jobs,
        str(tuning.MAX_WORKFLOW_JOBS),
        "N",
    ),
    Option(
        "retention_completed",
        "PULSE_RETENTION_COMPLETED",
        "retention",
        "how long COMPLETED jobs are kept, or forever",
        parse_retention,
        written(tuning.RETENTION_COMPLETED),
        "DURATION",
    ),
    Option(
        "retention_canceled",
        "PULSE_RETENTION_CANCELED",
        "retention",
        "how long CANCELED jobs are kept, or forever",
        parse_retention,
        written(tuning.RETENTION_CANCELED),
        "DURATION",
    ),
    Option(
        "retention_dead_lettered",
        "PULSE_RETENTION_DEAD_LETTERED",
        "retention",
        "how long DEAD_LETTERED jobs are kept, or forever",
        parse_retention,
        written(tuning.RETENTION_DEAD_LETTERED),
        "DURATION",
    ),
    Option(
        "retention_audit",
        "PULSE_RETENTION_AUDIT",
        "retention",
        "how long the audit keeps its entries, or forever",
        parse_retention,
        written(tuning.RETENTION_AUDIT),
        "DURATION",
    ),
    Option(
        "retention_grace",
        "PULSE_RETENTION_GRACE",
        "retention",
        "how long a shortened retention of a topic waits before it deletes, or 0",
        parse_grace,
        written(tuning.RETENTION_GRACE),
        "DURATION",
    ),
)
