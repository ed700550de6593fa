"""Random workflows under workers, settlers, operators and killed sessions, over SQL alone.

`python3 dev.py chaos --workflows [SECONDS]` calls `main`. A short run is part of the tests, and so are faults
that are made on purpose.

    shapes.py    the shapes that are drawn; chaos draws them, too
    model.py     the conditions: how a job stands, given its parents
    tables.py    the tables of workflows as of one moment, and what is wrong with them
    world.py     the connections of two servers, and what the actors share
    actors.py    producers, workers, settlers, operators: each statement is the project's own
    trial.py     runs them, kills sessions and Postgres, and judges by the audit and the rules of chaos
    mutants.py   faults made on purpose, each of which a trial has to find
"""

from __future__ import annotations


def main(seconds: float, seed: int, mutant: str | None = None) -> int:
    """Run for this long and print the report. Returns 0 if nothing is wrong, else 1."""
    from faults.workflows.trial import run

    return run(seconds, seed, mutant)
