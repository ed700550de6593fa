"""The command line of pulsed, made from the table of options."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby

from pulse_server.settings import OPTIONS, Option

_WIDTH = 100


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulsed",
        usage="pulsed [--migrate] [settings]\n       pulsed migrate [status] | check | psql [settings]\n"
        "       pulsed grants [--enqueue ROLE] [--complete ROLE]",
        description="The pulse server: keeps jobs in Postgres and hands them to workers over gRPC.",
        epilog="\n".join(_settings_help()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # A setting added later must not change the meaning of an abbreviation in a unit file.
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit"
    )
    _add_migrate(parser, "bring the schema of DB_HOST up to date before serving")
    _add_settings(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    about = "bring the schema up to date, or show its state"
    migrate = _add_command(commands, "migrate", about, usage="pulsed migrate [status] [settings]")
    migrate.add_argument("action", nargs="?", choices=["status"], help="show what is applied")
    _add_settings(migrate)
    about = "report what is wrong with this configuration, without serving and without changing anything"
    check = _add_command(commands, "check", about, usage="pulsed check [--migrate] [settings]")
    about = "open the embedded database of a pulsed that runs, with psql"
    psql = _add_command(commands, "psql", about, usage="pulsed psql [settings] [-- OPTIONS OF PSQL]")
    psql.add_argument("arguments", nargs="*", help="for psql, after --: -- -c 'SELECT 1'")
    _add_settings(psql)
    _add_migrate(check, "as if pulsed were started with --migrate")
    _add_settings(check)
    about = "print the statements that let roles of applications enqueue or complete jobs; needs no database"
    usage = "pulsed grants [--enqueue ROLE]... [--complete ROLE]..."
    grants = commands.add_parser(
        "grants", prog="pulsed grants", help=about, usage=usage, description=about, allow_abbrev=False
    )
    for right, may in (("enqueue", "enqueue jobs"), ("complete", "complete the jobs that it runs")):
        grants.add_argument(
            f"--{right}",
            metavar="ROLE",
            type=_role,
            action="append",
            default=[],
            help=f"a role that may {may}",
        )
    grants.set_defaults(refuse=grants.error)
    return parser


def environment(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as they are once the flags have been applied."""
    return {**environ, **given_flags(options)}


def given_flags(options: argparse.Namespace) -> dict[str, str]:
    """The values given on the command line, by variable."""
    names = (option.variable for option in OPTIONS)
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def granted_roles(options: argparse.Namespace) -> dict[str, list[str]]:
    """The roles of `pulsed grants`, by right. Ends the process if there are none."""
    roles = {"enqueue": options.enqueue, "complete": options.complete}
    if not any(roles.values()):
        options.refuse("name a role with --enqueue or --complete")
    return roles


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, usage: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=about,
        usage=usage,
        description=about,
        epilog="The settings are those of `pulsed --help`.",
        allow_abbrev=False,
    )


def _role(name: str) -> str:
    # Postgres reads "public" as PUBLIC, also in quotes.
    if name.lower() in ("", "public"):
        raise argparse.ArgumentTypeError("name one role: PUBLIC is every role of the database")
    return name


def _add_migrate(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("--migrate", action="store_true", default=argparse.SUPPRESS, help=about)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    # No default: a flag may stand before or after the command, and the second parser must not undo the first.
    for option in OPTIONS:
        if option.flag is not None:
            parser.add_argument(
                option.flag,
                dest=option.variable,
                metavar=option.metavar,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


def _settings_help() -> Iterator[str]:
    yield "settings, by variable or by flag; a flag wins. Durations are written 500ms, 30s, 5m, 1h or 7d."
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        yield ""
        yield f"{group}:"
        for option in options:
            yield f"  {option.variable:<30} {_flag(option)}"
            about = f"{option.help}{f' ({option.default})' if option.default else ''}"
            yield from textwrap.wrap(about, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _flag(option: Option) -> str:
    if option.flag is None:
        # On a command line everyone on the machine could read it.
        return "(no flag: it holds a secret)"
    return f"{option.flag} {option.metavar}"


class _ShowVersion(argparse.Action):
    """Finds out when it is asked: that takes longer than everything else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("pulse-jobs")
        except PackageNotFoundError:
            number = "(not installed: run from its sources)"
        print(f"pulsed {number}")
        parser.exit()
