"""Every check that a change has to pass."""

import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.environment import PYTHON, ROOT, call, child_environment, say

STATIC_CHECKS: dict[str, Sequence[str | Path]] = {
    "ruff check": ["-m", "ruff", "check", "--quiet", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "mypy": ["-m", "mypy"],
    "import-linter": [PYTHON.parent / "lint-imports", "--no-logo"],
    "stubs match proto": ["dev.py", "proto", "--check"],
    # It leaves the bytecode of the tests behind: else each worker of pytest would compile all of them.
    "tests can be read": ["-m", "pytest", "--collect-only", "-q"],
}


@dataclass(frozen=True)
class Outcome:
    """How one check ended."""

    check: str
    passed: bool
    seconds: float
    output: str = ""


def run_static_checks() -> list[Outcome]:
    """Run what only reads the sources, all at once. Prints each outcome, and the output of failed checks."""
    with ThreadPoolExecutor(len(STATIC_CHECKS)) as pool:
        return [report(outcome) for outcome in pool.map(run_static_check, STATIC_CHECKS)]


def run_static_check(check: str) -> Outcome:
    started = time.monotonic()
    code, output = call([PYTHON, *STATIC_CHECKS[check]])
    return Outcome(check, code == 0, time.monotonic() - started, output)


def run_pytest(tier: str, options: Sequence[str]) -> Outcome:
    """Run a tier of the tests, its output as pytest prints it. A SIGTERM lets it clean up, then ends it."""
    started = time.monotonic()
    with subprocess.Popen(
        [PYTHON, "-m", "pytest", *options], cwd=ROOT, env=child_environment(), stdin=subprocess.DEVNULL
    ) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # the terminal interrupted pytest as well: let it report what it has
                continue
    return report(Outcome(tier, process.returncode == 0, time.monotonic() - started))


def repair() -> None:
    """Let ruff rewrite what it can: fixable findings, then the format."""
    call([PYTHON, "-m", "ruff", "check", "--fix", "."])
    call([PYTHON, "-m", "ruff", "format", "."])


def report(outcome: Outcome) -> Outcome:
    """Print how a check ended. Returns the outcome."""
    say(f"{'ok' if outcome.passed else 'FAILED':<8}{outcome.check:<20}{outcome.seconds:6.1f} s")
    if not outcome.passed and outcome.output:
        say(outcome.output.rstrip())
    return outcome


def verdict(outcomes: list[Outcome]) -> int:
    """Print the summary. Returns the exit code."""
    failed = [outcome.check for outcome in outcomes if not outcome.passed]
    say(f"failed: {', '.join(failed)}" if failed else f"all {len(outcomes)} checks passed")
    return 1 if failed else 0
