"""Things that exist: jobs, schedules, workers and tokens, so that calls get past the first check.

Most are known beforehand: they are made from the seed and inserted into the database (seeding.py). The rest
is learned from answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from google.protobuf.message import Message

_NAMESPACE = UUID("0190f3a0-0000-7000-8000-0000000000f2")
_HEARD = 24
_ELEMENTS_LOOKED_AT = 4
_DEEPEST = 4

HELD_JOBS = 16
"""The first ids are of jobs that run, held by the first two workers in turn."""
WORN_ATTEMPTS = 60_000
"""Of the last one that is held: so many that their square exceeds 32 bits."""
FREE_JOBS = 24
"""The last ids are of no job as yet."""
TOPICS = ("fuzz", "mail", "a", "reports.daily:v2/x")
WORKERS = ("w1", "w2", "fuzz worker é", "w4")


@dataclass(frozen=True)
class Claim:
    """A worker, its job, the attempt and the run. Run 0: a message that has none named it."""

    job_id: str
    worker_id: str
    attempt: int
    run: int


class Acquaintances:
    """What a draw may choose from. It changes between rounds only: Hypothesis draws the same thing again to
    shrink it, and must get it."""

    def __init__(self, seed: int) -> None:
        # Of a version that a submit may choose.
        self.jobs = [
            str(UUID(bytes=uuid5(_NAMESPACE, f"{seed} job {number}").bytes, version=4))
            for number in range(64)
        ]
        self.schedules = [str(uuid5(_NAMESPACE, f"{seed} schedule {number}")) for number in range(12)]
        held = self.jobs[:HELD_JOBS]
        self.claims = [Claim(job_id, WORKERS[number % 2], 1, 1) for number, job_id in enumerate(held)]
        self.claims[-1] = replace(self.claims[-1], attempt=WORN_ATTEMPTS, run=WORN_ATTEMPTS)
        self.tokens = [""]
        self.error_groups = ["none"]
        self.names = [f"schedule {seed} {number}" for number in range(4)]
        self.keys = [f"key-{number}" for number in range(12)]
        self._heard: dict[str, deque[Any]] = {
            "job_id": deque(maxlen=_HEARD),
            "schedule_id": deque(maxlen=_HEARD // 2),
            "next_page_token": deque(maxlen=_HEARD // 2),
            "error_group": deque(maxlen=4),
            "claim": deque(maxlen=_HEARD),
        }
        self.own_jobs, self.own_schedules = list(self.jobs), list(self.schedules)
        self._own_claims = list(self.claims)

    def hear(self, answers: Iterable[Message], worker_id: str = "") -> None:
        """Keep the ids and tokens in the answers for the next round. `worker_id`: the caller, if a worker."""
        for answer in answers:
            self._walk(answer, worker_id, _DEEPEST)

    def turn_page(self) -> None:
        """Let the next round choose from what was learned."""
        heard = self._heard
        self.jobs = self.own_jobs + list(heard["job_id"])
        self.schedules = self.own_schedules + list(heard["schedule_id"])
        self.claims = self._own_claims + list(heard["claim"])
        self.tokens = ["", *heard["next_page_token"]]
        self.error_groups = ["none", *heard["error_group"]]

    def _walk(self, message: Message, worker_id: str, depth: int) -> None:
        facts: dict[str, Any] = {}
        for field, value in message.ListFields():
            if field.name in ("job_id", "schedule_id", "next_page_token", "error_group"):
                self._heard[field.name].append(value)
            facts[field.name] = value
            if field.message_type is not None and depth:
                inner = [value] if isinstance(value, Message) else value
                if not isinstance(inner, list) and not hasattr(inner, "add"):
                    continue  # a map
                for element in inner[:_ELEMENTS_LOOKED_AT]:
                    self._walk(element, worker_id, depth - 1)
        holder = worker_id or facts.get("worker_id", "")
        if holder and "job_id" in facts and facts.get("attempt"):
            self._heard["claim"].append(Claim(facts["job_id"], holder, facts["attempt"], facts.get("run", 0)))
