"""`python3 dev.py chaos --upgrade`: a database with jobs in every state goes to a next release under load."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from faults.upgrade.report import as_text
from faults.upgrade.rows import Filling
from faults.upgrade.trial import Outcome, Report, carry_out

_INTERRUPTED = 130
# Leases of dead workers end while old servers are at work, during the migration, and after it.
_LEASE_SECONDS = 120


def main(rows: int) -> int:
    """Run the trial and print the report. Returns 0 if nothing is wrong, else 1."""
    began = time.monotonic()

    def report(what: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {what}", flush=True)

    directory = Path(tempfile.mkdtemp(prefix="pulse-upgrade-"))
    directory.chmod(0o711)  # the account that runs Postgres may traverse it, and not list it
    print("upgrade to a release with one migration more", flush=True)
    filling = Filling(rows, served=max(100, rows // 100), lease_seconds=_LEASE_SECONDS)
    try:
        outcome = asyncio.run(_run_until_stopped(filling, directory, report))
    except (KeyboardInterrupt, asyncio.CancelledError):
        shutil.rmtree(directory, ignore_errors=True)
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return _INTERRUPTED
    except BaseException:
        print(f"the logs are in {directory / 'pulse'}", file=sys.stderr)
        raise
    print(as_text(outcome))
    if outcome.faults:
        print(f"  the logs are in {directory / 'pulse'}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


async def _run_until_stopped(filling: Filling, directory: Path, report: Report) -> Outcome:
    this = asyncio.current_task()
    assert this is not None
    # Like Ctrl-C, which asyncio handles.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await carry_out(filling, directory, report)
