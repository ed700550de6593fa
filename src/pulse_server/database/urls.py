"""DB_HOST: taken apart as libpq does, and put into the form of the driver."""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, unquote

# ---------------------------------------------------------------- libpq parameters
# The connection parameters of libpq, which managed databases put in URLs, and their handling.

# The driver takes these as they are. `options` goes to the server, as with libpq.
TAKEN = frozenset(
    {
        "host",
        "port",
        "dbname",
        "user",
        "password",
        "passfile",
        "options",
        "target_session_attrs",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslrootcert",
        "sslcrl",
        "sslpassword",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "krbsrvname",
        "gsslib",
    }
)
# Other programs' words for them.
ALIASES = {"database": "dbname", "ssl": "sslmode", "requiressl": "sslmode"}
# Read here, because the driver lacks them or takes them in another form.
TRANSLATED = frozenset({"connect_timeout", "hostaddr", "service", "servicefile", "sslnegotiation"})

_KERNEL = "the settings of the kernel apply"
_NO_GSS = "connections use TLS, never GSSAPI encryption"
# Nothing is lost without these. The reason follows "is ignored:" in a sentence.
_HARMLESS = {
    "application_name": "sessions are named pulsed",
    "fallback_application_name": "sessions are named pulsed",
    "client_encoding": "it is always UTF8",
    "keepalives": _KERNEL,
    "keepalives_idle": _KERNEL,
    "keepalives_interval": _KERNEL,
    "keepalives_count": _KERNEL,
    "tcp_user_timeout": f"{_KERNEL}, and pulsed bounds each statement",
    "load_balance_hosts": "pulsed uses the host that takes writes",
    "gssencmode": _NO_GSS,
    "gssdelegation": _NO_GSS,
    "sslcompression": "there is no TLS compression",
    "sslsni": "the name of the host is always sent",
    "sslkeylogfile": "set the variable SSLKEYLOGFILE",
    "min_protocol_version": "version 3.0 is used",
    "max_protocol_version": "version 3.0 is used",
    "replication": "pulsed opens ordinary sessions",
    "authtype": "it has no meaning any more",
    "tty": "it has no meaning any more",
}
_PROOF = "sslmode=verify-full proves who the server is"
# An operator who asked for these wanted to be sure of something: the log warns.
_MISSED = {
    "channel_binding": f"the driver has no channel binding; {_PROOF}",
    "require_auth": f"the server chooses the method; {_PROOF}",
    "requirepeer": f"the driver does not look at the peer's user; {_PROOF}",
    "sslcertmode": "a certificate is sent if there is one",
    "sslcrldir": "put the lists into one file and name it in sslcrl",
    "scram_client_key": "give the password",
    "scram_server_key": "give the password",
    "oauth_issuer": "the driver knows no OAuth",
    "oauth_client_id": "the driver knows no OAuth",
    "oauth_client_secret": "the driver knows no OAuth",
    "oauth_scope": "the driver knows no OAuth",
}
# Values of ignored parameters that demand something that pulsed does not support.
_IMPOSSIBLE = {
    ("gssencmode", "require"): "pulsed cannot encrypt with GSSAPI. Leave it out, and use sslmode.",
    ("replication", "database"): "pulsed needs ordinary sessions. Leave it out.",
    ("replication", "true"): "pulsed needs ordinary sessions. Leave it out.",
    ("replication", "on"): "pulsed needs ordinary sessions. Leave it out.",
    ("replication", "yes"): "pulsed needs ordinary sessions. Leave it out.",
    ("replication", "1"): "pulsed needs ordinary sessions. Leave it out.",
}
# Values that change nothing: not worth a line in the log.
_IDLE = {("channel_binding", "disable"), ("channel_binding", "prefer"), ("sslcertmode", "allow")}
KNOWN = TAKEN | TRANSLATED | ALIASES.keys() | _HARMLESS.keys() | _MISSED.keys()
# Parameters that other drivers and tools put into URLs.
_OF_OTHERS = {
    "pgbouncer": "Remove it, and set PULSE_DB_POOLER=on if the URL leads to a pooler.",
    "pool_mode": "Remove it, and set PULSE_DB_POOLER=on if the URL leads to a pooler.",
    "prepareThreshold": "Remove it, and set PULSE_DB_POOLER=on if the URL leads to a pooler.",
    "connection_limit": "Remove it: the number of connections is fixed.",
    "schema": "Remove it: the schema is always pulse.",
    "currentSchema": "Remove it: the schema is always pulse.",
    "search_path": "Remove it: the schema is always pulse.",
}
CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
}


@dataclass(frozen=True, slots=True)
class Ignored:
    """A parameter without effect."""

    name: str
    reason: str
    is_missed: bool
    """The parameter would have made the connection safer."""

    def __str__(self) -> str:
        return f"{self.name} is ignored: {self.reason}"


def ignored(name: str, value: str) -> Ignored | None:
    """The parameter, if it has no effect. None if it has one, or if its value asks for nothing."""
    if (name, value) in _IDLE or name not in _HARMLESS | _MISSED:
        return None
    return Ignored(name, (_HARMLESS | _MISSED)[name], name in _MISSED)


def problem(name: str, value: str) -> str | None:
    """Why the parameter cannot be used, in a sentence that names it and never its value if that is secret."""
    if name not in KNOWN:
        advice = _OF_OTHERS.get(
            name, "Remove it; a setting of the session is written as options=-c%20name%3Dvalue."
        )
        return f"has the parameter {name!r}, which libpq does not know. {advice}"
    if impossible := _IMPOSSIBLE.get((name, value.lower())):
        return f"has {name}={value}: {impossible}"
    choices = CHOICES.get(name)
    if choices and value not in choices:
        return f"has {name}={value}: give one of {', '.join(choices)}."
    return None


# ---------------------------------------------------------------- connection strings
# Takes a connection string apart, a URL or `key=value …`, as libpq does. No secret shows in its errors.

SCHEMES = ("postgres://", "postgresql://")

# Characters that end a part of a URL: a password must escape them.
_SPECIAL = "/?#@[]"
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")
_WORD = re.compile(r"(?:[^\s\\']|\\.)*", re.DOTALL)
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NUMBER = re.compile(r"\d*")


class BadConnectionString(ValueError):
    """It cannot be read; the text continues a sentence that begins with the name of the setting."""


def is_url(text: str) -> bool:
    return text.startswith(SCHEMES)


def is_key_value(text: str) -> bool:
    return "://" not in text.partition("=")[0] and _KEYWORD.match(text) is not None


def split_url(text: str) -> tuple[str, dict[str, str]]:
    """The URL without its parameters, and these by name."""
    scheme, _, rest = text.partition("://")
    if torn := _unescaped(rest):
        written = ", ".join(f"{character} as {quote(character, safe='')}" for character in torn)
        raise BadConnectionString(
            f"has a password with {' and '.join(torn)} in it, which a URL cannot have as it is. "
            f"Write {written}; the rest of the password stays."
        )
    base, _, query = rest.partition("?")
    hosts = base.partition("/")[0].rpartition("@")[2]
    if not all(_NUMBER.fullmatch(_port(host)) for host in hosts.split(",")):
        raise BadConnectionString(
            "has a port that is not a number. If this is a part of the password, write its special "
            "characters as %xx: / is %2F, # is %23, ? is %3F, @ is %40."
        )
    return f"{scheme}://{base}", _parameters(query)


def split_key_value(text: str) -> dict[str, str]:
    """The parameters of `host=db user=pulse password='a b'`, by name."""
    parameters: dict[str, str] = {}
    place = 0
    while text[place:].strip():
        keyword = _KEYWORD.match(text, place)
        if keyword is None:
            raise BadConnectionString(
                "cannot be read as key=value pairs. A value with a space in it is written in single quotes."
            )
        value = _QUOTED.match(text, keyword.end()) or _WORD.match(text, keyword.end())
        assert value is not None
        if value.end() < len(text) and not text[value.end()].isspace():
            raise BadConnectionString(
                f"cannot be read as key=value pairs: the value of {keyword[1]} has a quote in it. "
                "Write it in single quotes, with \\' for a quote and \\\\ for a backslash."
            )
        parameters[keyword[1]] = _ESCAPE.sub(r"\1", value[1] if value.re is _QUOTED else value[0])
        place = value.end()
    return parameters


def with_parameters(base: str, parameters: dict[str, str]) -> str:
    """The URL with its parameters in their places."""
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
    return f"{base}?{query}" if query else base


def _parameters(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadConnectionString(f"has the parameter {name!r} without a value. Write name=value.")
        parameters[unquote(name)] = unquote(value)
    return parameters


def _unescaped(rest: str) -> list[str]:
    """The special characters between user and host that end the password too early, if there are any."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    base, _, query = rest.partition("?")
    is_whole = (
        "#" not in rest
        and base.count("@") == authority.count("@") <= 1
        # An @ is fine in known parameters, since users of some clouds have one, but not in others.
        and ("@" not in query or {pair.partition("=")[0] for pair in query.split("&")} <= KNOWN)
        and not set("[]") & set(authority.rpartition("@")[0])
    )
    if is_whole:
        return []
    password = rest.rpartition("@")[0].partition(":")[2]
    return [character for character in _SPECIAL if character in password] or ["#"]


def _port(host: str) -> str:
    return host.rpartition("]")[2].partition(":")[2] if "]" in host else host.partition(":")[2]


# ---------------------------------------------------------------- database url
# DB_HOST as libpq would read it, put into the form that the driver takes.

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
    if is_url(text):
        base, parameters = split_url(text)
    elif is_key_value(text):
        base, parameters = "postgresql://", split_key_value(text)
    else:
        raise BadConnectionString(
            "must be a URL such as postgres://user:password@host:5432/database, or key=value pairs such as "
            "host=db user=pulse dbname=jobs; leave it out to run the embedded Postgres."
        )
    parameters = _from_service(_renamed(parameters))
    for name, value in parameters.items():
        if wrong := problem(name, value):
            raise BadConnectionString(wrong)
    ignored_entries = [ignored(name, value) for name, value in parameters.items()]
    taken = {name: value for name, value in parameters.items() if name in TAKEN and value}
    trusts_system = _takes_system(taken)
    return DatabaseUrl(
        url=with_parameters(base, _with_hosts(taken, parameters, base)),
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
        renamed[ALIASES.get(name, name)] = value
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
