"""The connection parameters of libpq, which managed databases put in URLs, and their handling."""

from __future__ import annotations

from dataclasses import dataclass

# The driver takes these as they are. `options` goes to the server, as with libpq.
TAKEN = frozenset(
    {
        *("host", "port", "dbname", "user", "password", "passfile", "options", "target_session_attrs"),
        *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib"),
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
