"""Topics with limits in a made-up run."""

from __future__ import annotations

from typing import Any

from faults.changes import LimitEvent
from faults.tests.made_up.runs import MadeUpRun


class MadeUpLimits:
    """Writes the audit of limits. Each event is committed 10 ms after the one before it."""

    def __init__(self, run: MadeUpRun) -> None:
        self._run = run
        self._jobs = 0

    def limit(self, topic: str = "sync", *, pool: str = "", **entries: Any) -> None:
        """Give the topic limits, or change them: of its pool, and of the topic itself."""
        name = pool or topic
        shared = {key: entries.pop(key, None) for key in ("limit", "starts", "seconds")}
        policy = dict.fromkeys(("per_lane", "lane_starts", "lane_seconds"))
        self._add("pool", name, facts=shared)
        facts = {"pool": name, "ordered": False, "ages": False, "retired": False, "closed_until": None}
        facts |= policy | entries
        self._add("policy", topic, facts=facts)

    def unlimit(self, topic: str = "sync") -> None:
        self._add("policy", topic)

    def own_limit(self, lane: str, limit: int | None, topic: str = "sync") -> None:
        self._add("lane", topic, lane=lane, facts={"limit": limit})

    def hold(self, seconds: float, pool: str = "sync") -> None:
        facts = {"limit": None, "starts": None, "seconds": None}
        self._add("pool", pool, moment=self._run.at + int(seconds * 1e6), facts=facts)

    def wait(self, lane: str = "a", topic: str = "sync", *, job: str = "", priority: int = 0) -> str:
        """A job of a lane may start. Returns its id."""
        job = job or self._name()
        self._add("wait", topic, lane=lane, job_id=job, moment=self._run.at, facts={"priority": priority})
        return job

    def start(
        self, lane: str | None = None, topic: str = "sync", *, job: str = "", counted_in: str | None = ""
    ) -> str:
        facts = {"pool": topic if counted_in == "" else counted_in}
        job = job or self._name()
        self._add("start", topic, lane=lane, job_id=job, moment=self._run.at, facts=facts)
        return job

    def end(self, job: str, lane: str | None = None, topic: str = "sync", *, again: bool = False) -> None:
        self._add("end", topic, lane=lane, job_id=job, facts={"again": again})

    def drop(self, job: str, lane: str = "a", topic: str = "sync") -> None:
        self._add("drop", topic, lane=lane, job_id=job)

    def _name(self) -> str:
        self._jobs += 1
        return f"job-{self._jobs}"

    def _add(
        self,
        what: str,
        name: str,
        *,
        lane: str | None = None,
        job_id: str | None = None,
        moment: int | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        at = self._run.at
        self._run.limits.append(
            LimitEvent(at, self._run.number(), at, what, name, lane, job_id, moment, facts)
        )
        self._run.wait()
