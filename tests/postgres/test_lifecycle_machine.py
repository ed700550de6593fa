"""Random walks through a job's life against real Postgres, predicted by the model step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pulse_server.base.errors import PulseError
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.reports import Slots, Taker
from pulse_server.jobs.rules import INITIAL, LEGAL_TRANSITIONS, TERMINAL, WAITING, Claim, Job, JobStatus
from tests.fakes.store import LEASE, a_job, failure, token
from tests.postgres.lifecycle_claims import DISTORTIONS, Said, numbers, said
from tests.postgres.lifecycle_world import World, without_moments

TOPICS = ["email", "sms"]
WORKERS = ["A", "B", "C"]
ERROR_GROUP = "0123456789ab"


once_claimed = precondition(lambda self: bool(self.issued))


class Lifecycle(RuleBasedStateMachine):
    """Hypothesis leaves rules out at random, walk by walk: they are few and large here, so that most walks
    still meet every kind of event."""

    jobs = Bundle("jobs")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.world.forget_everything()
        self.submitted: set[str] = set()
        self.issued: list[Claim] = []
        self.delivered: set[str] = set()
        self.completed: set[str] = set()

    # --- producers

    @initialize(target=jobs, attempts=st.tuples(*[st.integers(1, 3)] * 3), confirms=st.booleans())
    def begin_with_jobs_of_which_two_run(
        self, attempts: tuple[int, ...], confirms: bool
    ) -> MultipleResults[NewJob]:
        jobs = [self.submit("email", 0, most, None, False) for most in attempts]
        self.claim(["email"], [confirms] * 3, [0, 1])
        return multiple(*jobs)

    @rule(
        target=jobs,
        topic=st.sampled_from(TOPICS),
        priority=st.integers(-1, 1),
        max_attempts=st.integers(1, 3),
        key=st.sampled_from([None, None, "k1", "k2"]),
        delayed=st.booleans(),
    )
    def submit(self, topic: str, priority: int, max_attempts: int, key: str | None, delayed: bool) -> NewJob:
        job = a_job(
            topic,
            priority=priority,
            max_attempts=max_attempts,
            idempotency_key=key,
            payload=b"{}" if key is None or priority < 1 else b"other",
            delay=timedelta(hours=1) if delayed else None,
        )
        self._insert([job])
        return job

    @rule(job=jobs, payload=st.sampled_from([b"{}", b"other"]), neighbor=st.booleans())
    def submit_again(self, job: NewJob, payload: bytes, neighbor: bool) -> None:
        self._insert([job._replace(payload=payload), *([a_job("email")] if neighbor else [])])

    @rule(
        target=jobs,
        topic=st.sampled_from(TOPICS),
        max_attempts=st.integers(1, 2),
        key=st.sampled_from([None, None, None, "k1"]),
        takers=st.lists(
            st.one_of(st.none(), st.builds(Taker, st.sampled_from(WORKERS), st.booleans())),
            min_size=1,
            max_size=3,
        ),
    )
    def hand_over(
        self, topic: str, max_attempts: int, key: str | None, takers: list[Taker | None]
    ) -> MultipleResults[NewJob]:
        jobs = [a_job(topic, max_attempts=max_attempts) for _ in takers]
        jobs[-1] = jobs[-1]._replace(idempotency_key=key)
        answers = self.world.both(lambda repo: repo.hand_over_jobs(jobs, takers, LEASE))
        self._note_inserted(answers)
        for job, taker, answer in zip(jobs, takers, answers, strict=True):
            if isinstance(answer, Submitted) and answer.is_taken:
                assert taker is not None
                self.issued.append(Claim(job.id, taker.worker_id, 1, 1))
                if not taker.confirms or max_attempts > 1:
                    self.delivered.add(job.id)
        return multiple(*jobs)

    # --- workers

    @rule(
        topics=st.sampled_from([["email"], ["sms"], TOPICS]),
        confirms=st.tuples(st.booleans(), st.booleans(), st.booleans()),
        order=st.permutations([0, 1, 2, 0]),
    )
    def claim(self, topics: list[str], confirms: Sequence[bool], order: list[int]) -> None:
        slots = Slots(WORKERS, confirms, order)
        claimed = self.world.both(lambda repo: repo.claim_batch(topics, slots, LEASE))
        assert not {job.id for job in claimed} & self.completed, "a completed job was handed out"
        self.delivered.update(job.id for job in claimed if not job.confirm)
        self.issued.extend(token(job) for job in claimed if token(job) not in self.issued)

    @once_claimed
    @rule(said=said, verdict=st.sampled_from(["success", "failure", "failure", "retry", "discard"]))
    def report(self, said: list[Said], verdict: str) -> None:
        claims = self._claims(said)
        if verdict == "success":
            counted = self.world.both(lambda repo: repo.complete_jobs(claims))
            self.completed.update(claim.job_id for claim in counted)
        else:
            retry_after = timedelta(0) if verdict == "retry" else None
            reports = [
                failure(claim, retry_after=retry_after, discard=verdict == "discard", error_group=ERROR_GROUP)
                for claim in claims
            ]
            counted = set(self.world.both(lambda repo: repo.fail_jobs(reports)))
        self.delivered.update(claim.job_id for claim in counted)
        if verdict != "retry":
            self.world.postpone({claim.job_id for claim in counted})

    @once_claimed
    @rule(said=said, release=st.booleans())
    def beat_or_release(self, said: list[Said], release: bool) -> None:
        claims = self._claims(said)
        if release:
            self.world.both(lambda repo: repo.release_jobs(claims))
        else:
            answer = self.world.both(lambda repo: repo.extend_leases(claims, LEASE))
            self.delivered.update(claim.job_id for claim in answer.extended)

    # --- time, and the loops that watch it

    @once_claimed
    @rule(which=st.lists(numbers, max_size=3), limit=st.integers(0, 3))
    def leases_lapse(self, which: list[int], limit: int) -> None:
        """The leases of some jobs run out, and the watchdog passes by, unless its limit is zero."""
        self.world.settle_claims()
        for number in which:
            if job_id := self._pick(number, lambda job: job.status is JobStatus.RUNNING):
                self.world.travel(lambda time, job_id=job_id: time.lapse_leases(job_id))

        async def reap(repo: Any) -> set[Any]:
            return set(await repo.reap_expired(limit))

        reaped = self.world.both(reap) if limit else set()
        self.world.postpone({entry.claim.job_id for entry in reaped})

    @rule(which=st.lists(numbers, max_size=3), limit=st.integers(0, 3))
    def times_come(self, which: list[int], limit: int) -> None:
        """Some waiting jobs fall due, and the promoter passes by, unless its limit is zero."""
        for number in which:
            if job_id := self._pick(number, lambda job: job.status in WAITING and not job.ready):
                self.world.travel(lambda time, job_id=job_id: time.make_due(job_id))

        async def promote(repo: Any) -> tuple[Any, ...]:
            promotion = await repo.promote_due(limit)
            return promotion.promoted, promotion.topics, promotion.next_due_in is None

        if limit:
            self.world.both(promote)

    # --- operators

    @rule(
        job=jobs,
        verb=st.sampled_from(
            ["cancel", "cancel with a reason", "retry", "retry", "retry", "prioritize", "delete"]
        ),
        priority=st.integers(-1, 1),
    )
    def operate(self, job: NewJob, verb: str, priority: int) -> None:
        async def cancel(repo: Any) -> list[Any]:
            reason = "stop" if verb == "cancel with a reason" else ""
            return [
                (without_moments(entry.job), entry.ended_claim)
                for entry in await repo.cancel_jobs([job.id], reason)
            ]

        if verb == "retry":
            self.world.both(lambda repo: repo.retry_jobs([job.id], 1))
        elif verb == "prioritize":
            self.world.both(lambda repo: repo.prioritize_jobs([job.id], priority))
        elif verb == "delete":
            self._forget(self.world.both(lambda repo: repo.delete_jobs([job.id])))
        else:
            self.world.both(cancel)

    def _forget(self, deleted: dict[str, JobStatus]) -> None:
        """The id is free: the same job may be submitted anew, and begins at the beginning."""
        assert set(deleted.values()) <= TERMINAL
        self.submitted -= deleted.keys()
        self.completed -= deleted.keys()
        self.delivered -= deleted.keys()
        self.issued = [claim for claim in self.issued if claim.job_id not in deleted]

    # --- what never bends

    @invariant()
    def nothing_bends(self) -> None:
        seen = self.world.look(self.issued)
        self._check_that_none_is_lost_and_all_are_as_the_model_says(seen.jobs)
        self._check_that_at_most_one_lease_is_valid(seen.current)
        self._check_that_only_legal_transitions_happened(seen.changes)
        for job in seen.jobs.values():
            self._check_that_attempts_are_bounded_and_none_dies_undelivered(job)
            self._check_that_a_lease_means_running_and_an_end_means_terminal(job)

    def _check_that_none_is_lost_and_all_are_as_the_model_says(self, stored: dict[str, Job]) -> None:
        assert stored.keys() == self.submitted
        predicted = {job.id: without_moments(job) for job in self.world.model.jobs.values()}
        assert {job_id: without_moments(job) for job_id, job in stored.items()} == predicted

    def _check_that_at_most_one_lease_is_valid(self, current: Collection[Claim]) -> None:
        running = [job.id for job in self.world.model.jobs.values() if job.status is JobStatus.RUNNING]
        assert Counter(claim.job_id for claim in current) == Counter(running)

    def _check_that_attempts_are_bounded_and_none_dies_undelivered(self, job: Job) -> None:
        assert 0 <= job.attempts <= job.max_attempts
        assert job.status not in WAITING or job.attempts < job.max_attempts, "nothing could ever claim it"
        assert job.status is not JobStatus.DEAD_LETTERED or job.id in self.delivered
        assert job.id not in self.completed or job.status is JobStatus.COMPLETED

    def _check_that_a_lease_means_running_and_an_end_means_terminal(self, job: Job) -> None:
        is_running = job.status is JobStatus.RUNNING
        assert (job.locked_by is not None) == (job.lease_until is not None) == is_running
        assert (job.finished_at is not None) == (job.status in TERMINAL)
        assert not job.ready or job.status in WAITING
        assert bool(job.error_group) == (job.status is JobStatus.DEAD_LETTERED)

    def _check_that_only_legal_transitions_happened(self, changes: Sequence[tuple[str | None, str]]) -> None:
        for old, new in changes:
            if old is None:
                assert JobStatus(new) in INITIAL
            else:
                assert JobStatus(new) in LEGAL_TRANSITIONS[JobStatus(old)], f"{old} -> {new}"

    # --- choosing

    def _pick(self, number: int, wanted: Callable[[Job], bool]) -> str | None:
        """The n-th job of this kind, counted round and round; None if there is none."""
        found = [job.id for job in self.world.model.jobs.values() if wanted(job)]
        return found[number % len(found)] if found else None

    def _claims(self, said: list[Said]) -> list[Claim]:
        """What the workers say, one claim per job: which of two would win is the database's choice."""
        holding = [claim for claim in self.issued if self.world.model.held_by(claim)]
        claims = {}
        for which in said:
            known = holding if which.holds and holding else self.issued
            claim = DISTORTIONS[which.how](known[which.number % len(known)])
            claims[claim.job_id] = claim
        return list(claims.values())

    def _insert(self, jobs: list[NewJob]) -> None:
        self._note_inserted(self.world.both(lambda repo: repo.insert_jobs(jobs)))

    def _note_inserted(self, answers: Sequence[Submitted | PulseError]) -> None:
        self.submitted.update(
            answer.job_id for answer in answers if isinstance(answer, Submitted) and not answer.duplicate
        )


def test_every_walk_through_the_lifecycle_goes_as_the_model_predicts(world: World) -> None:
    run_state_machine_as_test(
        lambda: Lifecycle(world),
        settings=settings(
            max_examples=90,
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
