"""The connection to pulsed: the client, its settings, and the file with the saved ones.

A setting comes from a flag, else the environment, else the file, and knows its origin. The file has named
contexts, one of them current. It is readable by its owner only:

{"current": "production",
 "contexts": {"production": {"address": "pulse.example:50051", "user": "ops", "password": "…", "tls": true}}}
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse_cli import tuning
from pulse_cli.failures import Misuse
from pulse_cli.inputs import given
from pulse_cli.terminal import follow

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


# ---------------------------------------------------------------- the client


def settings_here(*, any_context: bool = False) -> Settings:
    """Return the settings of the running command. An unknown context is Misuse, unless `any_context`."""
    config = read_config(config_path(os.environ))
    if config.warning:
        click.echo(f"pulse: warning: {config.warning}", err=True)
    settings = resolve(given(click.get_current_context()), os.environ, config)
    if settings.warning and not any_context:
        click.echo(f"pulse: warning: {settings.warning}", err=True)
    context = settings.values["context"]
    if context.origin is not Origin.DEFAULT and context.value not in config.contexts and not any_context:
        raise config.unknown(context.value)
    return settings


@contextlib.contextmanager
def connected() -> Iterator[SyncPulse]:
    """Yield a client for the length of a block. It connects with its first call."""
    with client_for(with_password(settings_here())) as client:
        follow(client.server_time)  # the clock of this machine may be wrong
        yield client


def with_password(settings: Settings) -> Settings:
    """Return the settings with a password, prompting for it if there is a user without one."""
    if settings["user"] is None or settings["password"] is not None:
        return settings
    if not sys.stdin.isatty():
        raise Misuse(
            f"The password of {settings['user']!r} is missing: set PULSE_PASSWORD, or give --password-stdin."
        )
    given(click.get_current_context())["password"] = click.prompt(
        f"Password of {settings['user']}", hide_input=True, err=True
    )
    return resolve(given(click.get_current_context()), os.environ, settings.config)


def client_for(settings: Settings) -> SyncPulse:
    """Return a client with these settings and no others."""
    options = _client_options(settings)
    from pulse import SyncPulse

    return SyncPulse(settings["address"], **options)


def async_client_for(settings: Settings) -> Pulse:
    """Return the same for programs with an event loop."""
    options = _client_options(settings)
    from pulse import Pulse

    return Pulse(settings["address"], **options)


def _client_options(settings: Settings) -> dict[str, Any]:
    # Before gRPC is imported: it would print each failed handshake beside our own sentence.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    secure: dict[str, Any] = {"tls": False}
    if settings["tls"]:
        certificate, key = settings["tls_cert"], settings["tls_key"]
        secure = {
            "tls": True,
            "ca": settings["tls_ca"],
            "cert": (certificate, key) if key else certificate,
            "server_name": settings["tls_server_name"],
        }
    return {
        "user": settings["user"],
        "password": settings["password"],
        "timeout": given(click.get_current_context()).get("timeout", tuning.CALL_TIMEOUT),
        **secure,
    }


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the variables that make an application's own client use these settings."""
    variables = {
        FIELDS[name].variable: settings[name]
        for name in ("address", "user", "password", "tls_ca", "tls_cert", "tls_key", "tls_server_name")
    }
    variables["PULSE_TLS"] = "on" if settings["tls"] else "off"
    return {variable: value for variable, value in variables.items() if variable and value}


# ---------------------------------------------------------------- settings

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


# ---------------------------------------------------------------- the file

DEFAULT_CONTEXT = "default"
TEXTS = ("address", "user", "password", "tls_ca", "tls_cert", "tls_key", "tls_server_name")
SWITCHES = ("tls",)

Context = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the file; empty if there is none."""

    path: Path
    current: str | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)
    warning: str | None = None
    """A warning about the file itself, such as its mode."""

    def with_context(self, name: str, context: Context) -> ConfigFile:
        """Return the file with this context added or replaced. The first one becomes current."""
        contexts = {
            **self.contexts,
            name: {key: value for key, value in context.items() if value is not None},
        }
        return ConfigFile(self.path, self.current or name, contexts)

    def without_context(self, name: str) -> ConfigFile:
        """Return the file without this context. If it was current, none is."""
        contexts = {known: context for known, context in self.contexts.items() if known != name}
        return ConfigFile(self.path, None if self.current == name else self.current, contexts)

    def with_current(self, name: str) -> ConfigFile:
        """Return the file with another context current."""
        return ConfigFile(self.path, name, self.contexts)

    def unknown(self, name: str) -> Misuse:
        """Return the error for a context that does not exist."""
        known = ", ".join(self.contexts) or "none"
        return Misuse(
            f"There is no context {name!r} in {self.path}. Known contexts: {known}. "
            f"Create it with `pulse save creds --context {name}`."
        )


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file, which may not exist."""
    base = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification ignores a relative path.
    if base and Path(base).is_absolute():
        return Path(base) / "pulse" / "config.json"
    try:
        return Path(environment.get("HOME") or Path.home()) / ".config" / "pulse" / "config.json"
    except RuntimeError:
        raise Misuse("Your home directory is unknown: set HOME or XDG_CONFIG_HOME.") from None


def read_config(path: Path) -> ConfigFile:
    """Read the file. Raises Misuse if it exists and cannot be used."""
    try:
        text = path.read_text(encoding="utf-8")
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return ConfigFile(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misuse(f"{path} cannot be read: {reason}.") from None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Misuse(
            f"{path} is not JSON ({error}). Correct it, or remove it and run `pulse save creds`."
        ) from None
    current, contexts = _checked(document, path)
    warning = None
    if mode & 0o077:
        warning = f"{path} can be read by others (mode {mode:04o}). Run: chmod 600 {path}"
    return ConfigFile(path, current, contexts, warning)


def write_config(config: ConfigFile) -> None:
    """Replace the file atomically, readable by its owner only."""
    # Follow a link: the configuration may be kept in a repository.
    path = Path(os.path.realpath(config.path))
    document = {"current": config.current, "contexts": {name: dict(c) for name, c in config.contexts.items()}}
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        config.path.parent.chmod(0o700)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)  # regardless of the umask
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError as error:
        raise Misuse(f"{config.path} cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


def _checked(document: Any, path: Path) -> tuple[str | None, dict[str, Context]]:
    def refuse(problem: str) -> Misuse:
        return Misuse(f"{path}: {problem}. Correct it, or remove the file and run `pulse save creds`.")

    if not isinstance(document, dict):
        raise refuse("it is not a JSON object")
    contexts = document.get("contexts", {})
    if not isinstance(contexts, dict) or not all(isinstance(context, dict) for context in contexts.values()):
        raise refuse('"contexts" is not an object of objects')
    for name, context in contexts.items():
        for key, value in context.items():
            if (key in TEXTS and not isinstance(value, str)) or (
                key in SWITCHES and not isinstance(value, bool)
            ):
                kind = "text" if key in TEXTS else "true or false"
                raise refuse(f'"{key}" of the context "{name}" must be {kind}')
    current = document.get("current")
    if current is not None and not isinstance(current, str):
        raise refuse('"current" is not the name of a context')
    return current, contexts
