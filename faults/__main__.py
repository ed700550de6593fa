"""`python3 dev.py chaos`: inject faults, and report whether a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom

from faults.chaos import Result, Run, carry_out_run
from faults.kinds import KINDS
from faults.nemesis import draw_plan
from faults.report import as_json, as_text
from faults.workflows.mutants import MUTANTS

_SECONDS = 60.0
_JOBS_PER_SECOND = 100.0
_WISHES_PER_SECOND = 10.0
_INTERRUPTED = 130
_ROWS = 1_000_000
_HANDLERS_SECONDS = 600.0
_WORKFLOWS_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if every promise was kept, else 1."""
    options = _parser().parse_args(arguments)
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    without = frozenset(kind.name for kind in KINDS if options.only and kind.name not in options.only)
    if options.plan:
        print("\n".join(str(fault) for fault in draw_plan(seed, options.seconds, without)))
        return 0
    if options.ha:
        from faults import ha

        return ha.main(options.seconds, seed)
    if options.bad_days:
        return _bad_days()
    if options.fuzz is not None:
        from faults import fuzzing

        return fuzzing.main(options.fuzz, seed)
    if options.handlers is not None:
        from faults import handlers

        return handlers.main(options.handlers, seed)
    if options.workflows is not None:
        from faults import workflows

        return workflows.main(options.workflows, seed, options.mutant)
    if options.upgrade is not None:
        from faults import upgrade

        return upgrade.main(options.upgrade)
    run = Run(seed, options.seconds, options.rate, without, options.transfers, options.without_complete)
    return _chaos(run, options.json, options.keep)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 dev.py chaos",
        description="Run servers, workers and applications on a Postgres of their own, inject faults into "
        "all of them, heal everything, and check from the recorded history that no promise was broken. "
        "The exit code is 1 if one was.",
    )
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of faults (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="draws the faults (default: a random one)")
    parser.add_argument(
        "--rate",
        type=float,
        default=_JOBS_PER_SECOND,
        metavar="JOBS",
        help="enqueued per second, at most (default: %(default)g)",
    )
    parser.add_argument(
        "--transfers",
        type=float,
        default=_WISHES_PER_SECOND,
        metavar="JOBS",
        help="enqueued per second in transactions of applications, at most, to move money between accounts "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--without-complete",
        action="store_true",
        help="a control: move the money without ctx.complete. The exit code is 0 if the checker finds money "
        "that was moved twice, and no other broken promise",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the history and the logs in this directory"
    )
    parser.add_argument(
        "--plan", action="store_true", help="print the faults that the seed draws, and run nothing"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="KIND",
        choices=sorted({kind.name for kind in KINDS}),
        help="draw faults of this kind only; may be given several times",
    )
    parser.add_argument("--ha", action="store_true", help="instead: fail over a Patroni cluster under load")
    parser.add_argument("--bad-days", action="store_true", help="instead: run the bad days at full size")
    parser.add_argument(
        "--fuzz", type=int, metavar="INPUTS", help="instead: send this many bad inputs to the RPCs"
    )
    parser.add_argument(
        "--upgrade",
        type=int,
        nargs="?",
        const=_ROWS,
        metavar="ROWS",
        help="instead: upgrade a database with this many jobs in every state to a next release, under load "
        "(default: %(const)s)",
    )
    parser.add_argument(
        "--handlers",
        type=float,
        nargs="?",
        const=_HANDLERS_SECONDS,
        metavar="SECONDS",
        help="instead: run handlers that exit, fork, hang, leak and blow up (default: %(const)g)",
    )
    parser.add_argument(
        "--workflows",
        type=float,
        nargs="?",
        const=_WORKFLOWS_SECONDS,
        metavar="SECONDS",
        help="instead: random workflows over SQL alone, with several settlers (default: %(const)g)",
    )
    parser.add_argument(
        "--mutant",
        metavar="NAME",
        choices=sorted(MUTANTS),
        help="with --workflows, a control: make a fault on purpose. The exit code is 0 if it is found",
    )
    return parser


def _bad_days() -> int:
    import pytest

    os.environ["PULSE_BAD_DAYS"] = "full"
    return int(
        pytest.main(["-v", *map(str, sorted((Path(__file__).parent / "tests").glob("test_bad_days_*.py")))])
    )


def _chaos(run: Run, figures: Path | None, keep: Path | None) -> int:
    directory = keep or Path(tempfile.mkdtemp(prefix="pulse-chaos-"))
    directory.mkdir(exist_ok=True)
    began = time.monotonic()

    def report(what: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {what}", flush=True)

    print(f"chaos with seed {run.seed}", flush=True)
    try:
        result = asyncio.run(_run_until_stopped(run, directory, report))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
        return _INTERRUPTED
    print(as_text(result, str(directory)))
    if figures is not None:
        figures.write_text(json.dumps(as_json(result), indent=2) + "\n")
    if result.is_good and keep is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if result.is_good else 1


async def _run_until_stopped(run: Run, directory: Path, report: Callable[[str], None]) -> Result:
    this = asyncio.current_task()
    assert this is not None
    # Like Ctrl-C, which asyncio handles.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await carry_out_run(run, directory, report)


if __name__ == "__main__":
    sys.exit(main())
