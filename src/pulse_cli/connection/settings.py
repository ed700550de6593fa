"""The address and the user: from flags, else the environment, else the file. A value knows its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pulse_cli.connection.config_file import DEFAULT_CONTEXT, ConfigFile
from pulse_cli.failures import Misuse

DEFAULT_ADDRESS = "localhost:50051"
_DEFAULT_HOST, _, _DEFAULT_PORT = DEFAULT_ADDRESS.partition(":")
_LOOPBACK = "127.0.0.1"  # the SDK dials this for localhost
_ON = frozenset({"1", "on", "true", "yes"})
_OFF = frozenset({"0", "off", "false", "no"})


class Origin(StrEnum):
    """The source of a value, in order of precedence."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and its source."""

    value: Any
    origin: Origin
    where: str = ""
    """The flag, the variable or the context."""


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: its name in the file, its flag, its variable."""

    name: str
    flag: str
    variable: str | None


FIELDS = {
    field.name: field
    for field in (
        Field("context", "--context", "PULSE_CONTEXT"),
        Field("address", "--addr", "PULSE_ADDR"),
        Field("user", "--user", "PULSE_USER"),
        Field("password", "--password-stdin", "PULSE_PASSWORD"),
        Field("tls", "--tls", "PULSE_TLS"),
        Field("tls_ca", "--tls-ca", "PULSE_TLS_CA"),
        Field("tls_cert", "--tls-cert", "PULSE_TLS_CLIENT_CERT"),
        Field("tls_key", "--tls-key", "PULSE_TLS_CLIENT_KEY"),
        Field("tls_server_name", "--tls-server-name", "PULSE_TLS_SERVER_NAME"),
    )
}
_UNSET = Setting(None, Origin.DEFAULT)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach pulsed. `values` has a Setting for each of FIELDS."""

    values: Mapping[str, Setting]
    config: ConfigFile
    warning: str | None = None
    """Set when saved credentials are not used, with what to do."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value


def resolve(flags: Mapping[str, Any], environment: Mapping[str, str], config: ConfigFile) -> Settings:
    """Choose each value. Raises Misuse for settings that contradict each other."""
    chosen = (_Source(Origin.FLAG, flags), _Source(Origin.ENVIRONMENT, _of_environment(environment)))
    context = _context(chosen, config)
    saved = _Source(Origin.FILE, config.contexts.get(context.value, {}), f"context {context.value}")
    sources = (*chosen, saved)
    values = {"context": context}
    values["address"] = address = _first(sources, "address") or Setting(DEFAULT_ADDRESS, Origin.DEFAULT)
    own_address = saved.get("address") or Setting(DEFAULT_ADDRESS, Origin.DEFAULT)
    warning = None
    if is_same_address(address.value, own_address.value):
        values["user"], values["password"] = _credentials(sources)
    else:
        values["user"], values["password"] = _credentials(chosen)
        if saved.get("password") is not None and values["password"].value is None:
            warning = _withheld(context.value, own_address.value, address)
    values["tls"] = _tls(sources)
    for name in ("tls_ca", "tls_cert", "tls_server_name"):
        values[name] = _first(sources, name) or _UNSET
    # A key belongs to the certificate of the same source.
    values["tls_key"] = next(
        (source.get("tls_key") or _UNSET for source in sources if source.get("tls_cert")), _UNSET
    )
    if values["tls_cert"].value is None and (key := _first(sources, "tls_key")):
        raise Misuse(f"There is a key ({key.where}) without its certificate: give the certificate as well.")
    return Settings(values, config, warning)


def is_same_address(address: str, other: str) -> bool:
    """Compare addresses that may omit hosts or ports, and may name several servers in any order."""
    return _each_in_full(address) == _each_in_full(other)


def _each_in_full(address: str) -> set[tuple[str, str]]:
    return set(map(_in_full, address.split(",")))


def _in_full(address: str) -> tuple[str, str]:
    """Return host and port. An address that cannot be parsed equals itself only."""
    text = address.strip().lower()
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, _DEFAULT_PORT
    host = host or _DEFAULT_HOST
    return (_LOOPBACK if host == _DEFAULT_HOST else host), port


def _withheld(context: str, own_address: str, address: Setting) -> str:
    return (
        f"the credentials of the context {context} are for {own_address} and are not sent to {address.value} "
        f"({address.where}). Give --user and the password, or save them for that address: "
        f"pulse save creds --context NAME --addr {address.value}"
    )


@dataclass(frozen=True, slots=True)
class _Source:
    origin: Origin
    values: Mapping[str, Any]
    where: str = ""

    def get(self, name: str) -> Setting | None:
        value = self.values.get(name)
        if value is None or value == "":
            return None
        field = FIELDS[name]
        names = {Origin.FLAG: field.flag, Origin.ENVIRONMENT: field.variable or ""}
        return Setting(value, self.origin, names.get(self.origin, self.where))


def _first(sources: tuple[_Source, ...], name: str) -> Setting | None:
    return next((found for source in sources if (found := source.get(name)) is not None), None)


def _context(sources: tuple[_Source, ...], config: ConfigFile) -> Setting:
    if (named := _first(sources, "context")) is not None:
        return named
    if config.current is None:
        return Setting(DEFAULT_CONTEXT, Origin.DEFAULT)
    return Setting(config.current, Origin.FILE, str(config.path))


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        field.name: environment.get(field.variable) for field in FIELDS.values() if field.variable
    }
    word = (found["tls"] or "").strip().lower()
    if word and word not in _ON | _OFF:
        raise Misuse(f"PULSE_TLS is {word!r}: give on or off.")
    found["tls"] = word in _ON if word else None
    return found


def _credentials(sources: tuple[_Source, ...]) -> tuple[Setting, Setting]:
    user = _first(sources, "user")
    for source in sources:
        password, owner = source.get("password"), source.get("user")
        # A password saved for one user is never sent for another.
        if password is None or (owner is not None and user is not None and owner.value != user.value):
            continue
        if user is None:
            raise Misuse(f"There is a password ({password.where}) without a user: give --user or PULSE_USER.")
        return user, password
    return user or _UNSET, _UNSET


def _tls(sources: tuple[_Source, ...]) -> Setting:
    for source in sources:
        if (switch := source.get("tls")) is not None:
            if source.origin is Origin.FLAG and switch.value is False:
                return Setting(False, Origin.FLAG, "--no-tls")
            return switch
        for name in ("tls_ca", "tls_cert", "tls_server_name"):
            if (implied := source.get(name)) is not None:
                return Setting(True, implied.origin, implied.where)
    return Setting(False, Origin.DEFAULT)
