"""Bad input at scale: every RPC, structured and as raw bytes, against real servers on a real database.

`python3 dev.py chaos --fuzz INPUTS --seed S` calls `main`. A smaller run is part of the tests.

    contract.py   the RPCs, read from the descriptors
    messages.py   requests by their descriptors (texts.py, numbers.py) about what exists (acquaintances.py)
    mangling.py   bytes that are no message; callers.py: headers, credentials, names; wires.py: connections
    making.py     all of these as inputs (inputs.py), which searching.py has Hypothesis choose and shrink
    client.py     sends them (sending.py), judges the answers (judging.py), counts them (tally.py), and has
                  a well-formed caller beside them (neighbor.py)
    campaign.py   rounds over every RPC; run.py: several at a time, in processes (part.py), for a large run
    vitals.py     what must be true of the process and of the rows; seeding.py: the rows that are named
    known.py      inputs that once got a bad answer
"""

from __future__ import annotations


def main(inputs: int, seed: int) -> int:
    """Send this many inputs and print the report. Returns 0 without a complaint, else 1."""
    from faults.fuzzing.run import run

    return run(inputs, seed)
