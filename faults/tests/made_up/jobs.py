"""A job of a made-up run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from faults.changes import JobChange, JobState
from faults.rules.crashes import MAX_CRASHES
from faults.tests.made_up.runs import STEP, MadeUpRun

LEASE = 1_000_000
_FREE: dict[str, None] = {"locked_by": None, "lease_until": None}


class MadeUpJob:
    """A job. Each method appends the changes and events of one step of its life."""

    def __init__(
        self,
        run: MadeUpRun,
        key: str = "k",
        *,
        job_id: str = "",
        topic: str = "mail",
        expect: str = "complete",
        max_attempts: int = 3,
        unique: str | None = None,
    ) -> None:
        self.id = job_id or str(UUID(int=run.number()))
        self.key = key
        self.topic = topic
        self.state: JobState | None = None
        self.worker = ""
        self._run = run
        self._expect = expect
        self._max_attempts = max_attempts
        self._unique = unique  # its scope and its key
        self._op = ""

    # ------------------------------------------------------------ its owner

    def submit(self, how: str | None = "done", *, to: str | None = None, is_stored: bool = True) -> MadeUpJob:
        """Send it, store it (handed over to a worker, if one is named), and answer."""
        self.send()
        if is_stored:
            self.insert(to)
        return self.answer(how)

    def send(self) -> MadeUpJob:
        self._op = self._run.send("submit", key=self.key, topic=self.topic, expect=self._expect)
        return self

    def answer(self, how: str | None = "done") -> MadeUpJob:
        facts = {"job_id": self.id} if how == "done" else {"reason": "…"}
        self._run.answer("submit", self._op, how, key=self.key, **facts)
        return self

    def insert(
        self,
        to: str | None = None,
        *,
        ready: bool = True,
        schedule_id: str | None = None,
        held: bool = False,
        txid: int | None = None,
    ) -> MadeUpJob:
        if to is None:
            new = JobState("PENDING", 0, 0, self._max_attempts, None, None, ready, False, None, held=held)
        else:
            self.worker = to
            lease = self._run.at + LEASE
            new = JobState("RUNNING", 1, 1, self._max_attempts, to, lease, False, False, None)
        given = {"key": self.key, "schedule_id": schedule_id, "unique_key": self._unique}
        return self._change(new, txid, **given)

    # ------------------------------------------------------------ its workers

    def claim(self, worker: str, run: int = 0) -> MadeUpJob:
        self.worker = worker
        state = self.now
        return self.become(
            status="RUNNING",
            attempts=state.attempts + 1,
            run=run or state.run + 1,
            locked_by=worker,
            lease_until=self._run.at + LEASE,
            ready=False,
            delivered=False,
        )

    def beat(self) -> MadeUpJob:
        return self.become(lease_until=self._run.at + LEASE, delivered=True)

    def start(self, worker: str = "", run: int = 0) -> MadeUpJob:
        return self._say("started", worker, run, topic=self.topic)

    def end(self, outcome: str = "completed", **facts: Any) -> MadeUpJob:
        return self._say("ended", outcome=outcome, **facts)

    def complete(self) -> MadeUpJob:
        return self.become(status="COMPLETED", finished_by=self.now.locked_by, **_FREE)

    def fail(self, outcome: str = "failed") -> MadeUpJob:
        return self._lose(outcome, outcome == "discarded" or self.now.attempts >= self.now.max_attempts)

    def snooze(self, outcome: str = "snoozed", **columns: int) -> MadeUpJob:
        """Snooze or suspend it, with other columns than is right if some are named."""
        self.start().end("Snooze")
        now = self.now
        counts = {"attempts": now.attempts - 1, "snoozes": now.snoozes + (outcome == "snoozed")} | columns
        return self.become(outcome, status="RETRYING", ready=False, **counts, **_FREE)

    def release(self) -> MadeUpJob:
        return self.become(status="RETRYING", attempts=self.now.attempts - 1, ready=True, **_FREE)

    def run(self, worker: str, outcome: str = "completed") -> MadeUpJob:
        """Claim it, confirm it if needed, run it and report, all by one worker."""
        self.claim(worker)
        if not self.now.delivered:
            self.beat()
        return self.execute(outcome)

    def execute(self, outcome: str = "completed") -> MadeUpJob:
        self.start().end(outcome)
        return self.complete() if outcome == "completed" else self.fail(outcome)

    # ------------------------------------------------------------ the loops, and operators

    def promote(self) -> MadeUpJob:
        return self.become(ready=True)

    def reap(self) -> MadeUpJob:
        """Freeze its worker until the lease has expired, and reap it."""
        self._run.freeze(self.worker)
        self.expire()
        self._run.thaw(self.worker)
        return self

    def expire(self) -> MadeUpJob:
        """Wait until the lease has expired, and reap it."""
        state = self.now
        assert state.lease_until is not None
        self._run.wait_until(state.lease_until + STEP)
        attempts = state.attempts if state.delivered else state.attempts - 1
        crashes = state.crashes + state.delivered
        is_out = state.delivered and (attempts >= state.max_attempts or crashes >= MAX_CRASHES)
        return self._lose("lease_expired", is_out, attempts=attempts, crashes=crashes)

    def cancel(self) -> MadeUpJob:
        op = self._run.send("cancel", job_id=self.id)
        outcome = "canceled" if self.now.locked_by else None
        self.become(outcome, status="CANCELED", ready=False, **_FREE)
        return self._answered("cancel", op)

    def redrive(self) -> MadeUpJob:
        op = self._run.send("redrive", job_id=self.id)
        limit = max(self.now.max_attempts, self.now.attempts + 3)
        self.become(status="PENDING", ready=True, max_attempts=limit, finished_by=None, crashes=0)
        return self._answered("redrive", op)

    def delete(self) -> MadeUpJob:
        op = self._run.send("delete", job_id=self.id)
        self.vanish()
        return self._answered("delete", op)

    def vanish(self) -> MadeUpJob:
        """Remove the row without a request."""
        return self._change(None)

    def become(self, outcome: str | None = None, **columns: Any) -> MadeUpJob:
        """Change the row in any way, legal or not."""
        return self._change(self.now._replace(**columns), outcome=outcome)

    # ------------------------------------------------------------

    @property
    def now(self) -> JobState:
        assert self.state is not None, "there is no row"
        return self.state

    def _lose(self, outcome: str, is_out: bool, **columns: Any) -> MadeUpJob:
        by = self.now.locked_by if is_out else None
        status = "DEAD_LETTERED" if is_out else "RETRYING"
        return self.become(outcome, status=status, finished_by=by, **_FREE, **columns)

    def _change(self, new: JobState | None, txid: int | None = None, /, **given: Any) -> MadeUpJob:
        run = self._run
        facts = {"key": None, "schedule_id": None, "outcome": None} | given | {"old": self.state, "new": new}
        seq, own = run.number(), run.number()
        run.changes.append(JobChange(seq, txid or own, run.at, run.at, self.id, self.topic, **facts))
        self.state = new
        run.wait()
        return self

    def _answered(self, name: str, op: str) -> MadeUpJob:
        self._run.answer(name, op, job_id=self.id)
        return self

    def _say(self, what: str, worker: str = "", run: int = 0, **facts: Any) -> MadeUpJob:
        worker, run = worker or self.worker, run or self.now.run
        claim = {"job_id": self.id, "attempt": self.now.attempts, "run": run, "worker": worker}
        self._run.write(worker, what, **claim, **facts)
        return self
