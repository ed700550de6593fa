"""Handlers that misbehave: they exit, fork, hang, leak and blow up, and their workers have to survive.

`python3 dev.py chaos --handlers [SECONDS]` calls `main`. A short run is part of the tests.

    kinds.py      a kind of handler, and how its jobs have to end
    app.py        the application: all kinds, with the journal of what ran. Its handlers are in plain.py,
                  exits.py, forks.py, hangs.py and blowups.py
    workers.py    the workers, alone and under a supervisor, which are killed meanwhile
    vitals.py     the processes of the run: their memory, their threads, and those that must not be left
    campaign.py   submits jobs of all kinds, cancels some, waits for the end; judging.py: what went wrong
"""

from __future__ import annotations


def main(seconds: float, seed: int) -> int:
    """Run for this long and print the report. Returns 0 without a complaint, else 1."""
    from faults.handlers.campaign import run

    return run(seconds, seed)
