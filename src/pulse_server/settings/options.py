"""Every option of pulsed: its variable, flag, default and purpose. `--help` prints it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pulse_server import tuning
from pulse_server.access.users import BadUsers, parse_users
from pulse_server.settings import parsing
from pulse_server.settings.option import Option
from pulse_server.settings.parsing import BadSettings


def _users(text: str, name: str) -> Any:
    try:
        return parse_users(text, name)
    except BadUsers as error:
        raise BadSettings(str(error)) from None


def _written(span: timedelta) -> str:
    seconds = span.total_seconds()
    if seconds >= 86400 and seconds % 86400 == 0:
        return f"{seconds / 86400:g}d"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


OPTIONS: tuple[Option, ...] = (
    # --- where
    Option(
        "database_url",
        "DB_HOST",
        "database",
        "postgres:// URL, or key=value pairs; several hosts follow a failover; unset: an embedded Postgres",
        parsing.parse_database_url,
        metavar="URL",
        is_secret=True,
    ),
    Option(
        "behind_pooler",
        "PULSE_DB_POOLER",
        "database",
        "DB_HOST is a PgBouncer in transaction mode: no LISTEN, no session settings, nothing prepared",
        parsing.parse_switch,
        "off",
        "on|off",
    ),
    Option(
        "data_directory",
        "PULSE_DATA_DIR",
        "database",
        "where the embedded Postgres keeps its data; without XDG_DATA_HOME: ~/.local/share/pulse",
        parsing.parse_path,
        "$XDG_DATA_HOME/pulse",
        "DIR",
    ),
    Option(
        "grpc_address",
        "PULSE_GRPC_ADDR",
        "doors",
        "port, :port or host:port for gRPC; without a host: this machine only, everywhere if there are users",
        parsing.parse_address,
        str(parsing.DEFAULT_PORT),
        "ADDR",
    ),
    Option(
        "http_address",
        "PULSE_HTTP_ADDR",
        "doors",
        "the same for /healthz, /readyz and /metrics, or unix:/path; unset: no HTTP",
        parsing.parse_http_address,
        metavar="ADDR",
    ),
    Option(
        "users",
        "PULSE_AUTH_USERS",
        "doors",
        "user:password[:role], comma-separated; a password that starts with $2 is a bcrypt hash; unset: open",
        _users,
        metavar="USERS",
        is_secret=True,
    ),
    Option(
        "users_file",
        "PULSE_AUTH_USERS_FILE",
        "doors",
        "the same from a file, one user a line, read again when it changes",
        parsing.parse_path,
        metavar="FILE",
    ),
    Option(
        "open_to_network",
        "PULSE_INSECURE_OPEN_TO_NETWORK",
        "doors",
        "without users, listen on an address that others can reach: everyone who connects may do everything",
        parsing.parse_switch,
        "off",
        "on|off",
    ),
    Option(
        "metrics_need_login",
        "PULSE_METRICS_AUTH",
        "doors",
        "let only these users read /metrics",
        parsing.parse_switch,
        "off",
        "on|off",
    ),
    Option(
        "tls_certificate",
        "PULSE_TLS_CERT",
        "doors",
        "PEM file with the certificate chain; with PULSE_TLS_KEY, turns TLS on",
        parsing.parse_path,
        metavar="FILE",
    ),
    Option(
        "tls_key",
        "PULSE_TLS_KEY",
        "doors",
        "PEM file with its private key",
        parsing.parse_path,
        metavar="FILE",
    ),
    Option(
        "tls_client_ca",
        "PULSE_TLS_CLIENT_CA",
        "doors",
        "PEM file with the authorities whose client certificates are asked for (mutual TLS)",
        parsing.parse_path,
        metavar="FILE",
    ),
    Option(
        "reflection",
        "PULSE_GRPC_REFLECTION",
        "doors",
        "let tools such as grpcurl read the contract from the server",
        parsing.parse_switch,
        "off",
        "on|off",
    ),
    # --- how
    Option(
        "processes",
        "PULSE_PROCESSES",
        "running",
        "how many server processes share the port",
        parsing.parse_processes,
        "1",
        "N",
    ),
    Option(
        "log_level",
        "PULSE_LOG_LEVEL",
        "running",
        "debug, info, warning or error",
        parsing.parse_log_level,
        "info",
        "LEVEL",
    ),
    Option(
        "drain_timeout",
        "PULSE_DRAIN_TIMEOUT",
        "running",
        "how long calls under way may take after SIGTERM",
        parsing.parse_duration,
        _written(tuning.DRAIN_TIMEOUT),
        "DURATION",
    ),
    Option(
        "lease_ttl",
        "PULSE_LEASE_TTL",
        "leases",
        "how long a worker may be silent before its jobs are taken back",
        parsing.parse_duration,
        _written(tuning.LEASE_TTL),
        "DURATION",
    ),
    Option(
        "heartbeat_interval",
        "PULSE_HEARTBEAT_INTERVAL",
        "leases",
        "how often workers are asked to beat",
        parsing.parse_duration,
        _written(tuning.HEARTBEAT_INTERVAL),
        "DURATION",
    ),
    Option(
        "watchdog_interval",
        "PULSE_WATCHDOG_INTERVAL",
        "leases",
        "how often expired leases are reaped",
        parsing.parse_duration,
        _written(tuning.WATCHDOG_INTERVAL),
        "DURATION",
    ),
    Option(
        "dispatch_interval",
        "PULSE_DISPATCH_INTERVAL",
        "leases",
        "how long a job waits at the most if its wake-up is lost",
        parsing.parse_duration,
        _written(tuning.DISPATCH_INTERVAL),
        "DURATION",
    ),
    Option(
        "run_max_attempts",
        "PULSE_MAX_ATTEMPTS",
        "runs",
        "attempts of jobs that are submitted without their own number",
        parsing.parse_attempts,
        str(tuning.MAX_ATTEMPTS),
        "N",
    ),
    Option(
        "run_backoff",
        "PULSE_BACKOFF",
        "runs",
        "delays between attempts: the first, the factor of each next one, the longest, their spread",
        parsing.parse_backoff,
        tuning.BACKOFF,
        metavar="DELAYS",
    ),
    Option(
        "run_timeout",
        "PULSE_ATTEMPT_TIMEOUT",
        "runs",
        "how long one attempt may take; unset: no limit",
        parsing.parse_duration,
        metavar="DURATION",
    ),
    Option(
        "run_max_crashes",
        "PULSE_MAX_CRASHES",
        "runs",
        "after so many lost leases a job is a dead letter, whatever its attempts",
        parsing.parse_crashes,
        str(tuning.MAX_CRASHES),
        "N",
    ),
    Option(
        "max_result_bytes",
        "PULSE_MAX_RESULT",
        "runs",
        "how large what a handler returns may be, in bytes or as 64K; a larger result is a dead letter",
        parsing.parse_result_size,
        f"{tuning.MAX_RESULT_BYTES // 1024}K",
        "SIZE",
    ),
    Option(
        "max_steps",
        "PULSE_MAX_STEPS",
        "runs",
        "how many steps a job may have, and how many signals",
        parsing.parse_steps,
        str(tuning.MAX_STEPS),
        "N",
    ),
    Option(
        "max_step_bytes",
        "PULSE_MAX_STEP_BYTES",
        "runs",
        "how large the steps of a job may be together, and its signals (1M at the most), in bytes or as 1M",
        parsing.parse_step_size,
        f"{tuning.MAX_STEP_BYTES // 1024}K",
        "SIZE",
    ),
    Option(
        "max_workflow_jobs",
        "PULSE_MAX_WORKFLOW_JOBS",
        "runs",
        "how many jobs a workflow may have; it may have ten times as many waits of one job for another",
        parsing.parse_workflow_jobs,
        str(tuning.MAX_WORKFLOW_JOBS),
        "N",
    ),
    Option(
        "retention_completed",
        "PULSE_RETENTION_COMPLETED",
        "retention",
        "how long COMPLETED jobs are kept, or forever",
        parsing.parse_retention,
        _written(tuning.RETENTION_COMPLETED),
        "DURATION",
    ),
    Option(
        "retention_canceled",
        "PULSE_RETENTION_CANCELED",
        "retention",
        "how long CANCELED jobs are kept, or forever",
        parsing.parse_retention,
        _written(tuning.RETENTION_CANCELED),
        "DURATION",
    ),
    Option(
        "retention_dead_lettered",
        "PULSE_RETENTION_DEAD_LETTERED",
        "retention",
        "how long DEAD_LETTERED jobs are kept, or forever",
        parsing.parse_retention,
        _written(tuning.RETENTION_DEAD_LETTERED),
        "DURATION",
    ),
)
