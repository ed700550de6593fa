"""`python3 dev.py chaos --ha`: a Patroni cluster, made by the recipe of deploy/ha, loses its leaders."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults.ha.addresses import MACHINES, NoFreeAddress
from faults.ha.programs import Programs, ProgramsMissing, find_programs
from faults.ha.report import as_text
from faults.ha.trial import Outcome, Report, carry_out

_INTERRUPTED = 130


def main(seconds: float, seed: int) -> int:
    """Run the trial and print the report. Returns 0 if nothing was lost, else 1; also if it cannot run."""
    began = time.monotonic()

    def report(what: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {what}", flush=True)

    directory = Path(tempfile.mkdtemp(prefix="pulse-ha-"))
    directory.chmod(0o711)  # the account that runs Postgres may traverse it, and not list it
    try:
        programs = find_programs()
        print(f"failover with seed {seed}: {MACHINES} machines with {_versions(programs)}", flush=True)
        outcome = asyncio.run(_run_until_stopped(seconds, seed, directory, programs, report))
    except (ProgramsMissing, NoFreeAddress) as problem:
        shutil.rmtree(directory, ignore_errors=True)
        print(problem, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        shutil.rmtree(directory, ignore_errors=True)
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return _INTERRUPTED
    except BaseException:
        print(f"the logs are in {directory}", file=sys.stderr)
        raise
    print(as_text(outcome))
    if outcome.is_good:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"  the logs are in {directory}")
    return 0 if outcome.is_good else 1


async def _run_until_stopped(
    seconds: float, seed: int, directory: Path, programs: Programs, report: Report
) -> Outcome:
    this = asyncio.current_task()
    assert this is not None
    # Like Ctrl-C, which asyncio handles.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await carry_out(seconds, seed, directory, programs, report)


def _versions(programs: Programs) -> str:
    """The versions of etcd, Patroni and Postgres, from the first line of each."""
    commands = (programs.etcd, programs.patroni, str(programs.postgres / "postgres"))
    answers = [
        subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30, check=False)
        for command in commands
    ]
    return ", ".join((answer.stdout.splitlines() or ["?"])[0] for answer in answers)
