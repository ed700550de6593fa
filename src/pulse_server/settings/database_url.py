"""DB_HOST as libpq would read it, put into the form that the driver takes."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from pulse_server.settings import connection_strings, libpq_parameters
from pulse_server.settings.connection_strings import BadConnectionString
from pulse_server.settings.libpq_parameters import Ignored

# libpq's own floor: name resolution alone may take a second.
_SHORTEST_TIMEOUT = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    file: str
    key: str | None
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    url: str = field(repr=False)
    """The URL without parameters that the driver does not know."""
    connect_timeout: timedelta | None = None
    """Per host; None if not given."""
    trusts_system: bool = False
    """The server's certificate must name the host, and this machine must trust its authority."""
    certificate: ClientCertificate | None = None
    """The client certificate. Set only with `trusts_system`: otherwise the URL names it."""
    begins_with_tls: bool = False
    ignored: tuple[Ignored, ...] = ()


def read_database_url(text: str) -> DatabaseUrl:
    """Read a URL or key=value pairs. BadConnectionString in words that continue "DB_HOST …" if it cannot."""
    text = text.strip()
    if connection_strings.is_url(text):
        base, parameters = connection_strings.split_url(text)
    elif connection_strings.is_key_value(text):
        base, parameters = "postgresql://", connection_strings.split_key_value(text)
    else:
        raise BadConnectionString(
            "must be a URL such as postgres://user:password@host:5432/database, or key=value pairs such as "
            "host=db user=pulse dbname=jobs; leave it out to run the embedded Postgres."
        )
    parameters = _from_service(_renamed(parameters))
    for name, value in parameters.items():
        if problem := libpq_parameters.problem(name, value):
            raise BadConnectionString(problem)
    ignored_entries = [libpq_parameters.ignored(name, value) for name, value in parameters.items()]
    taken = {name: value for name, value in parameters.items() if name in libpq_parameters.TAKEN and value}
    trusts_system = _takes_system(taken)
    return DatabaseUrl(
        url=connection_strings.with_parameters(base, _with_hosts(taken, parameters, base)),
        connect_timeout=_timeout(parameters.get("connect_timeout", "")),
        trusts_system=trusts_system,
        certificate=_certificate(taken) if trusts_system else None,
        begins_with_tls=_begins_with_tls(parameters, taken, trusts_system),
        ignored=tuple(entry for entry in ignored_entries if entry is not None),
    )


def _renamed(parameters: dict[str, str]) -> dict[str, str]:
    renamed: dict[str, str] = {}
    for name, value in parameters.items():
        if name in ("ssl", "requiressl"):  # JDBC's word, which libpq takes in URLs, and an old one
            value = "require" if value in ("true", "1") else "prefer"
        renamed[libpq_parameters.ALIASES.get(name, name)] = value
    return renamed


def _from_service(parameters: dict[str, str]) -> dict[str, str]:
    """Add the parameters of the named service from its file. Parameters in DB_HOST win."""
    service = parameters.pop("service", "")
    given = parameters.pop("servicefile", "")
    if not service:
        return parameters
    path = Path(given or os.environ.get("PGSERVICEFILE", "") or "~/.pg_service.conf").expanduser()
    file = configparser.RawConfigParser()
    try:
        file.read_string(path.read_text(encoding="utf-8"))
        entries = dict(file[service])
    except (OSError, configparser.Error, KeyError, UnicodeError):
        raise BadConnectionString(
            f"names the service {service!r}, which cannot be read from {path}. Mend the file, or name "
            "another one in PGSERVICEFILE."
        ) from None
    return {**_renamed(entries), **parameters}


def _with_hosts(taken: dict[str, str], parameters: dict[str, str], base: str) -> dict[str, str]:
    """Hosts and ports as the driver reads them: an IPv6 address in brackets, no port left open."""
    if base.partition("://")[2].partition("/")[0].rpartition("@")[2]:  # the URL names hosts itself
        return taken
    hosts = (taken.get("host") or parameters.get("hostaddr") or "").split(",")
    ports = taken.get("port", "").split(",")
    written = [f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host for host in hosts]
    if hosts != [""]:
        taken = taken | {"host": ",".join(host or "localhost" for host in written)}
    if ports != [""]:
        if not all(port.isdecimal() or not port for port in ports):
            raise BadConnectionString("has a port that is not a number.")
        taken = taken | {"port": ",".join(port or "5432" for port in ports)}
    return taken


def _timeout(text: str) -> timedelta | None:
    try:
        seconds = int(text or 0)
    except ValueError:
        raise BadConnectionString("has a connect_timeout that is not a number of seconds.") from None
    return max(timedelta(seconds=seconds), _SHORTEST_TIMEOUT) if seconds > 0 else None


def _takes_system(taken: dict[str, str]) -> bool:
    if taken.get("sslrootcert") != "system":
        return False
    if taken.get("sslmode", "verify-full") != "verify-full":
        raise BadConnectionString(
            "has sslrootcert=system, which needs sslmode=verify-full: anybody can have a certificate of a "
            "public authority."
        )
    del taken["sslrootcert"]
    taken.pop("sslmode", None)
    return True


def _certificate(taken: dict[str, str]) -> ClientCertificate | None:
    if "sslcert" not in taken:
        return None
    return ClientCertificate(taken["sslcert"], taken.get("sslkey"), taken.get("sslpassword", ""))


def _begins_with_tls(parameters: dict[str, str], taken: dict[str, str], trusts_system: bool) -> bool:
    if parameters.get("sslnegotiation") != "direct":
        return False
    if not trusts_system and taken.get("sslmode") not in ("require", "verify-ca", "verify-full"):
        raise BadConnectionString("has sslnegotiation=direct, which needs sslmode=require or stronger.")
    return True
