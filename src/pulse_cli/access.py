"""`pulse whoami`, `save creds` and `passwd`: users. `pulse config`: the saved contexts and the settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.connection import (
    FIELDS,
    ConfigFile,
    Context,
    Origin,
    Setting,
    Settings,
    client_for,
    config_path,
    connected,
    read_config,
    resolve,
    settings_here,
    write_config,
)
from pulse_cli.declaring import Command, Group
from pulse_cli.failures import Misuse
from pulse_cli.inputs import WholeNumber, confirm, given, new_password
from pulse_cli.output import Shape, View, facts, output_here
from pulse_cli.terminal import QUIET, Cell, Column, Line, Row, hint, lay_out, now, print_lines
from pulse_text.printable import one_line

if TYPE_CHECKING:
    import pulse


@click.command(
    cls=Command,
    short_help="Show your user and role.",
    examples="""
        pulse whoami
        pulse whoami --output json | jq -r .role
        pulse whoami --output json | jq -e '.methods | index("RetryJobs")'
    """,
)
def whoami() -> None:
    """Show the user and role that the server assigns to you. The JSON also lists the permitted calls."""
    with connected() as client:
        identity = client.whoami()
    output_here().show_one(identity_shape(identity), lambda: _describe(identity))


def _describe(identity: pulse.Identity) -> Iterator[Line]:
    yield from facts(
        ("User", identity.user or "none: this server does not require a login"),
        ("Role", identity.role),
        present=now(),
    )


@click.group(cls=Group, examples="pulse save creds\npulse save creds --context production")
def save() -> None:
    """Save a connection to pulsed."""


@save.command(
    "creds",
    examples="""
        pulse save creds
        pulse save creds --context production --addr pulse.example:50051 --user ops --tls
        printf %s "$SECRET" | pulse save creds --addr pulse.example:50051 --user ops --password-stdin
    """,
)
@click.option("--check/--no-check", default=True, help="Log in first, and save nothing if the login fails.")
def creds(check: bool) -> None:
    """Save an address and credentials for later commands.

    Prompts for missing options. The file is $XDG_CONFIG_HOME/pulse/config.json or
    ~/.config/pulse/config.json, readable by you only. Use --context to save several; `pulse
    config use` switches between them.
    """
    settings = _ask(settings_here(any_context=True))
    name = settings["context"]
    if not name.strip() or not name.isprintable():
        raise Misuse(f"{name!r} cannot be the name of a context: use letters, digits and dashes.")
    warning = _check(settings) if check else None
    # Read again: the prompts may have taken long.
    before = read_config(config_path(os.environ))
    saved = before.with_context(name, {field: settings[field] for field in FIELDS if field != "context"})
    write_config(saved)
    shape = {"path": str(saved.path), "context": name, "current": saved.current == name}
    sentence = f"Saved as the context {name} in {saved.path}."
    if saved.current != name:
        sentence += f" Use it with --context {name}, or make it the default: pulse config use {name}"
    output_here().show_done(sentence, shape)
    if warning:
        hint(f"pulse: warning: {warning}")


def _ask(settings: Settings) -> Settings:
    """Prompt for missing options. Without a terminal, use the environment and the file."""
    flags = given(click.get_current_context())
    if sys.stdin.isatty():
        if "address" not in flags:
            flags["address"] = click.prompt("Address of pulsed", default=settings["address"], err=True)
        if "user" not in flags:
            asked = click.prompt(
                "User (empty if no login is required)", default=settings["user"] or "", err=True
            )
            flags["user"] = asked.strip()
        if flags["user"] and "password" not in flags:
            flags["password"] = click.prompt("Password", hide_input=True, err=True)
        if not flags["user"]:
            flags.pop("password", None)
            return _without_credentials(settings)
    elif settings["user"] and not settings["password"]:
        raise Misuse(f"The password of {settings['user']!r} is missing: give it with --password-stdin.")
    return resolve(flags, os.environ, settings.config)


def _without_credentials(settings: Settings) -> Settings:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PULSE_USER", "PULSE_PASSWORD")
    }
    name = settings["context"]
    kept = dict(settings.config.contexts.get(name, {}))
    kept.pop("user", None)
    kept.pop("password", None)
    return resolve(given(click.get_current_context()), environment, settings.config.with_context(name, kept))


def _check(settings: Settings) -> str | None:
    """Log in. Returns a warning if the server is unavailable; raises the SDK's error if the login fails."""
    import pulse

    with client_for(settings) as client:
        try:
            client.dispatch_status()
        except pulse.PermissionDenied:
            pass  # the login is valid; permissions are up to the administrator
        except pulse.Unavailable as error:
            return f"the login was not checked: {error.message}"
    return None


@click.command(
    cls=Command,
    short_help="Print the bcrypt hash of a password.",
    connects=False,
    examples="""
        pulse passwd
        printf %s "$SECRET" | pulse passwd --password-stdin
    """,
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option(
    "--cost",
    type=WholeNumber(4, 31),
    default=tuning.BCRYPT_COST,
    show_default=True,
    metavar="N",
    help="The work factor: each increment doubles the time of a check.",
)
def passwd(password_stdin: bool, cost: int) -> None:
    """Prompt for a password and print its bcrypt hash, for PULSE_AUTH_USERS and the users file of pulsed."""
    password = new_password("Password", from_stdin=password_stdin).encode()
    if not password:
        raise Misuse("The password is empty. Choose another one.")
    if len(password) > tuning.PASSWORD_BYTES:
        raise Misuse(
            f"The password has {len(password)} bytes, and bcrypt uses only {tuning.PASSWORD_BYTES}. "
            "Choose a shorter one."
        )
    if b"\0" in password:
        raise Misuse("The password contains a NUL character, where bcrypt stops. Choose another one.")
    import bcrypt

    hashed = bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()
    output = output_here()
    if output.form == "plain":
        click.echo(hashed)
    else:
        output.show_done(hashed, {"hash": hashed})
    if output.is_for_people and sys.stdout.isatty():
        hint("Give it to pulsed as name:hash or name:hash:role, in single quotes, because a shell expands $.")


# ---------------------------------------------------------------- pulse config

MASK = "********"


@click.group(cls=Group, connects=False, examples="pulse config show\npulse config use production")
def config() -> None:
    """Show the settings, and switch between saved contexts."""


@config.command(
    "show",
    examples="""
        pulse config show
        pulse config show --context production
        pulse config show --output json
    """,
)
def show() -> None:
    """Show each setting in effect and its source. Secrets are masked."""
    settings = settings_here(any_context=True)
    output = output_here()
    if not output.is_for_people:
        shape = {
            name: {
                "value": _masked(name, setting),
                "origin": str(setting.origin),
                "where": setting.where or None,
            }
            for name, setting in settings.values.items()
        }
        output.show_shape({"path": str(settings.config.path), "settings": shape})
        return
    rows = [
        [Cell(name), Cell(_text(_masked(name, setting))), Cell(_origin(setting), QUIET)]
        for name, setting in settings.values.items()
    ]
    print_lines(lay_out([Column("SETTING"), Column("VALUE"), Column("FROM")], rows, None))
    there = "" if settings.config.path.exists() else " (does not exist yet: `pulse save creds` creates it)"
    print_lines([[], [Cell(f"File: {settings.config.path}{there}", QUIET)]])


@config.command("contexts", connects=False, examples="pulse config contexts")
def contexts() -> None:
    """List the saved contexts."""
    saved = read_config(config_path(os.environ))

    def shape(name: str) -> dict[str, object]:
        context = saved.contexts[name]
        return {
            "name": name,
            "current": name == saved.current,
            "address": context.get("address"),
            "user": context.get("user"),
            "tls": bool(context.get("tls")),
        }

    view = View(
        (Column(""), Column("CONTEXT"), Column("ADDRESS"), Column("USER", drop=1), Column("TLS", drop=2)),
        lambda name: _row(name, saved.contexts[name], saved),
        shape,
        ("name", "current", "address", "user", "tls"),
    )
    empty = f"No context is saved in {saved.path}. Create one with: pulse save creds"
    output_here().show_list(list(saved.contexts), view, empty)


@config.command("use", connects=False, examples="pulse config use production")
@click.argument("name", metavar="CONTEXT")
def use(name: str) -> None:
    """Make a saved context the default."""
    saved = read_config(config_path(os.environ))
    if name not in saved.contexts:
        raise saved.unknown(name)
    write_config(saved.with_current(name))
    output_here().show_done(f"Commands use the context {name} from now on.", {"current": name})


@config.command("delete", connects=False, examples="pulse config delete staging")
@click.argument("name", metavar="CONTEXT")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(name: str, yes: bool) -> None:
    """Delete a saved context and its password."""
    saved = read_config(config_path(os.environ))
    if name not in saved.contexts:
        raise saved.unknown(name)
    confirm(f"Delete the context {name}?", yes=yes)
    rest = saved.without_context(name)
    write_config(rest)
    hint = "" if rest.current else " No context is current now. Choose one with: pulse config use CONTEXT"
    output_here().show_done(f"Deleted the context {name}.{hint}", {"deleted": name, "current": rest.current})


def _row(name: str, context: Context, saved: ConfigFile) -> Row:
    return [
        Cell("*" if name == saved.current else "", "green"),
        Cell(one_line(name), "bold" if name == saved.current else ""),
        Cell(one_line(str(context.get("address", "–")))),
        Cell(one_line(str(context.get("user", "–")))),
        Cell("on" if context.get("tls") else "off"),
    ]


def _masked(name: str, setting: Setting) -> object:
    return MASK if name == "password" and setting.value is not None else setting.value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "–" if value is None else one_line(str(value))


def _origin(setting: Setting) -> str:
    if setting.origin is Origin.DEFAULT:
        return "default" if setting.value is not None else ""
    if setting.origin is Origin.FILE:
        return f"file, {one_line(setting.where)}"
    return one_line(setting.where)


def identity_shape(identity: pulse.Identity) -> Shape:
    """The user and role of the caller."""
    return {"user": identity.user, "role": identity.role, "methods": sorted(identity.methods)}
