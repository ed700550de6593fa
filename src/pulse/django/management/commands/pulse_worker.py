"""`manage.py pulse_worker`: `pulse worker` for the handlers of the project, with the same options."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from pulse.django.clients import client
from pulse.errors import PulseError
from pulse.installation import how_to_install
from pulse.supervision import supervised
from pulse.supervision.processes import Command as ProcessCommand

if TYPE_CHECKING:
    import click

    from pulse.django.clients import DjangoPulse

_PATH = "PULSE_DJANGO_PATH"
# A process of this worker. The path comes first: manage.py may be in another directory, and is not run again.
_START = f"""
import json, os, sys
sys.path[:] = json.loads(os.environ.pop("{_PATH}"))
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


class Command(BaseCommand):
    """The management command."""

    help = "Run the handlers of the project: those in the tasks.py of each installed app."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command of this line. Without the extra `cli` print how to install it, and exit."""
        try:
            _check_installed()  # Django prints a traceback for an error in add_arguments
        except CommandError as error:
            self.stderr.write(f"CommandError: {error}")
            sys.exit(error.returncode)
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options of `pulse worker`."""
        for option in _options():
            given: dict[str, Any] = {"dest": option.name, "help": (option.help or "").replace("%", "%%")}
            if option.is_flag:
                given |= {"action": "store_true"}
            else:
                given |= {"metavar": option.metavar, "type": _converter(option)}
            if option.multiple:
                given |= {"action": "append", "default": []}
            parser.add_argument(*option.opts, **given)

    def handle(self, **values: Any) -> None:
        """Run the worker until SIGTERM or SIGINT."""
        from pulse_cli.failures import Failure, failure_of
        from pulse_cli.running import WorkerOptions, names, start

        supervised.hold_lifeline()
        if (values["processes"] or values["reload"]) and "DJANGO_SETTINGS_MODULE" not in os.environ:
            raise CommandError(
                "--processes and --reload start processes that read the settings again: set "
                "DJANGO_SETTINGS_MODULE, or leave them out."
            )
        options = WorkerOptions(
            os.environ.get("DJANGO_SETTINGS_MODULE", "the project"),
            names(values["topics"]),
            names(values["include"]),
            **{name: values[name] for name in ("concurrency", "drain_timeout", "max_jobs", "max_memory")},
            log_format=values["log_format"] or "text",
        )
        try:
            code = start(
                options,
                _process(list(options.flags())),
                lambda: _load(options.include),
                processes=values["processes"],
                reload=values["reload"],
            )
        except Failure as failure:
            raise CommandError(
                "\n  ".join([failure.sentence, *failure.details]), returncode=failure.code
            ) from None
        except PulseError as error:
            failed = failure_of(error)
            raise CommandError(failed.sentence, returncode=failed.code) from error
        if code:
            sys.exit(abs(code))


def _check_installed() -> None:
    if not (importlib.util.find_spec("click") and importlib.util.find_spec("rich")):
        raise CommandError(
            "pulse_worker needs the command line of pulse, which is not installed. " + how_to_install("cli")
        )


def _options() -> Iterator[click.Option]:
    _check_installed()
    import click

    from pulse_cli.workers import worker

    yield from (option for option in worker.params if isinstance(option, click.Option))


def _converter(option: click.Option) -> Callable[[str], Any]:
    import click

    def convert(text: str) -> Any:
        try:
            return option.type.convert(text, option, None)
        except click.BadParameter as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return convert


def _process(flags: list[str]) -> ProcessCommand:
    """Return how another process runs this worker. It has the settings of this one, by its environment."""
    path = json.dumps([entry or os.getcwd() for entry in sys.path])  # noqa: PTH109 - as the import system does
    return ProcessCommand([sys.executable, "-c", _START, "pulse_worker", *flags], {_PATH: path})


def _load(include: tuple[str, ...]) -> DjangoPulse:
    from pulse_cli.running import import_included

    import_included(include)
    app = client()
    if not app.handled_topics:
        raise CommandError(
            "There is nothing to run: no handler is registered. Write one in the tasks.py of an installed "
            'app, with `from pulse.django import app` and `@app.job("topic")`, or name its module with '
            "--include."
        )
    return app
