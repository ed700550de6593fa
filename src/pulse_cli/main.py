"""The entry point: runs a command, and turns every error into a sentence and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Run `pulse` with the arguments of this process."""
    if not (find_spec("click") and find_spec("rich")):
        # A bare install of the SDK has this script without its dependencies.
        from pulse.installation import how_to_install

        sys.exit(f"pulse: the command line needs more than the SDK. {how_to_install('cli')}")
    # A standard stream that was closed is None, and its number would go to the next file or socket.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without … prints ? instead of failing
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the commands are imported
        code = _end("interrupted.", 130)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output is gone. Without this the interpreter prints an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns its exit code; failures.py has the list."""
    import click

    from pulse_cli import failures
    from pulse_cli.program import pulse

    try:
        code = pulse.main(args=list(arguments), prog_name="pulse", standalone_mode=False)
        return code if isinstance(code, int) else failures.OK
    except failures.Failure as failure:
        return _end(failure.sentence, failure.code, failure.details)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click before 8.2 does not have it
            click.echo(error.format_message(), err=True)
            return failures.USAGE
        return _end(failures.usage_sentence(error), failures.USAGE)
    except click.ClickException as error:
        return _end(error.format_message(), failures.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _end("interrupted.", failures.INTERRUPTED)
    except SystemExit as ended:  # the reader of the output is gone
        return ended.code if isinstance(ended.code, int) else failures.FAILED
    except Exception as error:
        if os.environ.get("PULSE_DEBUG"):
            raise
        return _end(*_described(error))


def _described(error: Exception) -> tuple[str, int]:
    from pulse_cli import failures

    # If the SDK raised it, it has been imported; importing it here would cost its start-up time.
    pulse = sys.modules.get("pulse")
    if pulse is not None and isinstance(error, pulse.PulseError):
        failure = failures.failure_of(error)
        return failure.sentence, failure.code
    kind = type(error).__name__
    return f"unexpected error ({kind}: {error}). Set PULSE_DEBUG=1 for the traceback.", failures.FAILED


def _end(sentence: str, code: int, details: Sequence[str] = ()) -> int:
    import click

    from pulse_text.printable import one_line

    if sentence:
        click.echo(f"pulse: {one_line(sentence)}", err=True)
        for line in details:
            click.echo(f"  {one_line(line)}", err=True)
    return code
