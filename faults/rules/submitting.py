"""I25: a lock on a day of completed jobs that no submit can concern stops no submit.

Judged where submits were sent all the time, and a server and the database had no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.disturbances import OLD_DAY
from faults.evidence import Evidence
from faults.violations import Violation

PASSES_OLD_DAYS = "a lock on a day of long ago stops no submit"

# Submits that were under way when the lock was taken, or are when it is given back, are not judged.
_EDGE_NS = 10**9
# So many do not all call servers with a fault.
_ENOUGH = 20


def check_submitting(evidence: Evidence) -> Iterator[Violation]:
    for lock in evidence.disturbances.of_kind(OLD_DAY):
        begin, end = lock.begin + _EDGE_NS, lock.end - _EDGE_NS
        if not evidence.disturbances.is_calm(lock.begin, lock.end):
            continue
        sent = [request for request in evidence.requests["submit"] if begin <= request.sent <= end]
        if len(sent) >= _ENOUGH and not any(
            request.how == "done" and (request.ended or lock.end) < lock.end for request in sent
        ):
            what = f"None of {len(sent)} submits was acknowledged while {lock.facts.get('day')} was locked."
            yield Violation("I25", PASSES_OLD_DAYS, what, at=evidence.clock.earliest(lock.end))
