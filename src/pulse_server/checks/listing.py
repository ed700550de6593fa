"""The settings as a list: each with its value and where it comes from, and no secret in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from urllib.parse import unquote, urlsplit

from pulse_server.access.users import BadUsers, User, parse_users
from pulse_server.checks.findings import Finding, warn
from pulse_server.database.urls import BadConnectionString, is_url, split_key_value
from pulse_server.settings import OPTIONS, Option, Settings

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
# Read by the fault tests of pulse. Not settings. ADR-0032
_OF_TESTS = frozenset({"PULSE_FAILPOINTS", "PULSE_FAILPOINTS_SEED", "PULSE_REFUSE_CONNECTIONS"})
# Kubernetes gives these to every pod for a Service whose name begins with "pulse".
_OF_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_TAKEN_FOR_DB_HOST = ("DATABASE_URL", "DB_URL", "POSTGRES_URL", "PULSE_DB_HOST", "PULSE_DATABASE_URL")


def listed(environ: Mapping[str, str], flags: Mapping[str, str], settings: Settings | None) -> str:
    """One line per setting. If the settings are invalid, and so None, shows the raw text."""
    rows = [(option.variable, *_value_and_origin(option, environ, flags, settings)) for option in OPTIONS]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {origin}" for name, value, origin in rows)


def unknown_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
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
