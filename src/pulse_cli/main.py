"""The entry point: runs a command, and turns whatever goes wrong into a sentence and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn


def main() -> NoReturn:
    """Run `pulse` with the arguments of this process."""
    if not (find_spec("click") and find_spec("rich")):
        # A bare install of the SDK brings this script, but not what it needs.
        sys.exit("pulse: the command line needs more than the SDK. Run: pip install 'pulse-jobs[cli]'")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no … gets a ? instead of a failure
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left. Without this the interpreter complains about it at exit.
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
        return _end(failure.sentence, failure.code)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click before 8.2 does not have it
            click.echo(error.format_message(), err=True)
            return failures.USAGE
        return _end(failures.usage_sentence(error), failures.USAGE)
    except click.ClickException as error:
        return _end(error.format_message(), failures.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _end("interrupted.", failures.INTERRUPTED)
    except SystemExit as ended:  # a reader of our output that has gone away
        return ended.code if isinstance(ended.code, int) else failures.FAILED
    except Exception as error:
        if os.environ.get("PULSE_DEBUG"):
            raise
        return _end(*_told(error))


def _told(error: Exception) -> tuple[str, int]:
    from pulse_cli import failures

    # Only what has been imported can have raised it; asking for the SDK here would cost its start-up.
    pulse = sys.modules.get("pulse")
    if pulse is not None and isinstance(error, pulse.PulseError):
        failure = failures.failure_of(error)
        return failure.sentence, failure.code
    kind = type(error).__name__
    return f"something unexpected happened ({kind}: {error}). PULSE_DEBUG=1 shows where.", failures.FAILED


def _end(sentence: str, code: int) -> int:
    import click

    from pulse_text.printable import one_line

    if sentence:
        click.echo(f"pulse: {one_line(sentence)}", err=True)
    return code
