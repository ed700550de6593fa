"""A client of pulsed, made from flags, environment and file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pulse_cli import tuning
from pulse_cli.connection.config_file import config_path, read_config
from pulse_cli.connection.settings import FIELDS, Origin, Settings, resolve
from pulse_cli.failures import Misuse
from pulse_cli.inputs.shared_options import given
from pulse_cli.text import follow

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


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
