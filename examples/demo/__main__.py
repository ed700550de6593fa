"""Shows pulse at work: jobs run, fail, are retried, and survive a killed worker.

Everything is real and runs on this machine only: a Postgres and a pulse server in a temporary directory, a
dashboard, worker processes, and a program that submits jobs. All of it is gone when the demo ends.
"""

import os
import signal
import sys

# Ctrl-C ends the demo politely from its first moment on, while nothing runs that has to be ended.
signal.signal(signal.SIGINT, lambda *_: os._exit(0))

import argparse  # noqa: E402
import asyncio  # noqa: E402
from pathlib import Path  # noqa: E402

from examples.demo.show import Show  # noqa: E402

SHORTEST_SECONDS = 20


def main() -> int:
    """Run the demo. Returns 0, or 1 when something did not happen as it should."""
    options = parse_arguments()
    try:
        return asyncio.run(Show(seconds=options.seconds, keep=options.keep).run())
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`). Nothing more can be printed, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line, or end with a sentence about what is wrong with it."""
    parser = argparse.ArgumentParser(prog="dev.py demo", description=__doc__)
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="N",
        help=f"end after N seconds, at least {SHORTEST_SECONDS} (without it: at Ctrl-C)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the database and the logs there, for a look afterwards"
    )
    return parser.parse_args()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not SHORTEST_SECONDS <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"the story takes {SHORTEST_SECONDS} seconds, so {text} is too little"
        )
    return seconds


if __name__ == "__main__":
    sys.exit(main())
