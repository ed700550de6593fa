"""`pulse config`: the saved contexts, and the settings in effect."""

from __future__ import annotations

import os

import click

from pulse_cli.connection import (
    ConfigFile,
    Context,
    Origin,
    Setting,
    config_path,
    read_config,
    settings_here,
    write_config,
)
from pulse_cli.declaring import Group
from pulse_cli.inputs import confirm
from pulse_cli.output import View, output_here
from pulse_cli.terminal import QUIET, Cell, Column, Row, lay_out, print_lines
from pulse_text.printable import one_line

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
