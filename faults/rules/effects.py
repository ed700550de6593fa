"""I26: rows that a handler commits with the completion of its job, and a job that is committed with rows.

The rows are transfers between accounts. Each wish that was committed moves its money once, with the
completion of its job. A wish that was rolled back never does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from faults.bank import ACCOUNTS, BALANCE, Ledger, Transfer
from faults.evidence import Evidence
from faults.violations import Violation

HAPPEN_ONCE = "rows that are committed with a completion are stored at most once"
ARE_NOT_LOST = "a job that is completed with its rows has stored them"
COME_WITH_THE_END = "no rows are stored by a handler that has not completed its job"
JOBS_ARE_NOT_LOST = "a job that was enqueued in a committed transaction is stored"
ROLLED_BACK = "a transaction that was rolled back leaves no job and has no effect"
SUMS_ARE_EXACT = "every balance is the sum of what was moved"


def check_effects(evidence: Evidence) -> Iterator[Violation]:
    """I26."""
    ledger = evidence.ledger
    made: defaultdict[str, list[Transfer]] = defaultdict(list)
    for transfer in ledger.transfers:
        made[transfer.key].append(transfer)
    for wish in ledger.wishes:
        transfers = made.pop(wish.key, [])
        is_completed = evidence.audit.statuses.get(wish.job_id) == "COMPLETED"
        if wish.job_id not in evidence.lives:
            what = f"The wish {wish.key} was committed, but not its job {wish.job_id}."
            yield Violation("I26", JOBS_ARE_NOT_LOST, what, wish.job_id)
        if len(transfers) > 1:
            runs = ", ".join(f"run {transfer.run} of {transfer.worker}" for transfer in transfers)
            what = f"The money of {wish.key} was moved {len(transfers)} times: {runs}."
            yield Violation("I26", HAPPEN_ONCE, what, wish.job_id)
        if is_completed and not transfers:
            what = f"The job of {wish.key} is COMPLETED, but its money was not moved."
            yield Violation("I26", ARE_NOT_LOST, what, wish.job_id)
        if transfers and not is_completed:
            what = f"The money of {wish.key} was moved, but its job is not COMPLETED."
            yield Violation("I26", COME_WITH_THE_END, what, wish.job_id)
    for key, transfers in made.items():
        what = f"The money of {key} was moved, but that wish was not committed."
        yield Violation("I26", ROLLED_BACK, what, transfers[0].job_id)
    yield from _jobs_without_wishes(evidence)
    yield from _wrong_balances(evidence, ledger)


def _jobs_without_wishes(evidence: Evidence) -> Iterator[Violation]:
    wished = {wish.job_id for wish in evidence.ledger.wishes}
    for job_id, submits in evidence.submits_of.items():
        if job_id not in wished and any(submit.facts["expect"] == "transfer" for submit in submits):
            what = f"Job {job_id} was stored, but not the wish of its transaction."
            yield Violation("I26", ROLLED_BACK, what, job_id)


def _wrong_balances(evidence: Evidence, ledger: Ledger) -> Iterator[Violation]:
    moved: Counter[int] = Counter()
    for wish in ledger.wishes:
        if evidence.audit.statuses.get(wish.job_id) == "COMPLETED":
            origin, target, amount = wish.movement
            moved[origin] -= amount
            moved[target] += amount
    wrong = [account for account, balance in ledger.balances.items() if balance != BALANCE + moved[account]]
    if wrong or sum(ledger.balances.values()) != BALANCE * len(ledger.balances):
        what = (
            f"{len(wrong)} of {ACCOUNTS} balances are wrong, and the sum of all is "
            f"{sum(ledger.balances.values())} of {BALANCE * ACCOUNTS}."
        )
        yield Violation("I26", SUMS_ARE_EXACT, what)
