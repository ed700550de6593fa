"""Reads the hosts of a database URL, so that each host can be tried separately."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

_DEFAULT_PORT = "5432"


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the database: a name or address, or the directory of a unix socket."""

    name: str
    port: int

    def __str__(self) -> str:
        return self.name if self.name.startswith("/") else f"{self.name}:{self.port}"


def hosts_in(dsn: str) -> tuple[Host, ...]:
    """The hosts of the URL in order; empty if it names none. ValueError if it cannot be read."""
    parts = urlsplit(dsn)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    ports = query.get("port", "")
    if listed := parts.netloc.partition("@")[2] if "@" in parts.netloc else parts.netloc:
        names = [unquote(entry) for entry in listed.split(",")]
    else:
        names = query["host"].split(",") if "host" in query else []
    split = [_split(name) for name in names]
    defaults = (ports or os.environ.get("PGPORT", "") or _DEFAULT_PORT).split(",")
    if len(defaults) == 1:
        defaults *= len(split)
    if len(defaults) < len(split):
        raise ValueError("there are fewer ports than hosts")
    return tuple(
        Host(name, int(port or default)) for (name, port), default in zip(split, defaults, strict=False)
    )


def chosen_session(dsn: str) -> str | None:
    """Which hosts to accept (`target_session_attrs`) by the URL or the environment, if set."""
    named = parse_qs(urlsplit(dsn).query).get("target_session_attrs", [""])[-1]
    return named or os.environ.get("PGTARGETSESSIONATTRS") or None


def _split(entry: str) -> tuple[str, str]:
    if entry.startswith("/"):
        return entry, ""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = entry.partition(":")
    return name, port
