"""Takes a connection string apart, a URL or `key=value …`, as libpq does. No secret shows in its errors."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from pulse_server.settings.libpq_parameters import KNOWN

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
