"""The verbs for selections: count the jobs that match a filter, and change them batch by batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar, Unpack

from pulse.errors import InvalidArgument
from pulse.ids import uuid7
from pulse.jobs.caller import Caller
from pulse.jobs.models import JobStatus
from pulse.jobs.submissions import check_known
from pulse.messages import Reader, check_aware, message
from pulse.v1 import pulse_pb2 as pb


class JobFilter(TypedDict, total=False):
    """The conditions that jobs have to meet. A key that is absent or None is no condition."""

    topic: str | None
    topics: Iterable[str] | None
    """On one of these topics."""
    status: JobStatus | str | None
    statuses: Iterable[JobStatus | str] | None
    """In one of these statuses."""
    since: datetime | None
    """Submitted at this time or later."""
    before: datetime | None
    """Submitted before this time."""
    schedule_id: str | None
    """Created by this schedule."""
    error_contains: str | None
    """The last error contains this text. Case is ignored."""
    metadata: Mapping[str, str] | None
    """The job's metadata contains every entry given."""
    error_group: str | None
    """Dead letters of this group. `dead_letters` lists the groups."""
    lane: str | None
    """In this lane. The topic has to be given too."""


def filter_fields(**which: Unpack[JobFilter]) -> dict[str, Any]:
    """Return the filter by its names on the wire. Raises InvalidArgument for a value that is empty."""
    check_known("A filter of jobs", which, JobFilter.__annotations__)
    named = one_or_several("topic", which.get("topic"), which.get("topics"))
    lane = which.get("lane")
    if lane and (not named["topic"] or named["topics"]):
        raise InvalidArgument(f"lane={lane!r} belongs to a topic: give one topic as well.")
    return {
        **named,
        **one_or_several("status", which.get("status"), which.get("statuses")),
        "submitted_since": aware("since", which.get("since")),
        "submitted_before": aware("before", which.get("before")),
        "schedule_id": not_empty("schedule_id", which.get("schedule_id")),
        "error_contains": not_empty("error_contains", which.get("error_contains")),
        "metadata": which.get("metadata"),
        "error_group": not_empty("error_group", which.get("error_group")),
        "lane": not_empty("lane", lane),
    }


def job_filter(**which: Unpack[JobFilter]) -> pb.JobFilter:
    """Return the filter as a message. Raises InvalidArgument with the name of what cannot be sent."""
    return message(pb.JobFilter, **filter_fields(**which))


def one_or_several(name: str, value: str | None, values: Iterable[str] | None) -> dict[str, Any]:
    """Return the values for the wire. Raises InvalidArgument if one is empty, or if there are none.

    The first goes into the older field: a server that does not know the list takes the jobs of that one, and
    not all jobs.
    """
    plural = f"{name}es" if name.endswith("s") else f"{name}s"
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} has to be a string, but {value!r} was given: {plural} takes several.")
    first = not_empty(name, value)
    others = [] if values is None else [not_empty(plural, one) for one in names_of(plural, values)]
    if values is not None and not others:
        raise InvalidArgument(f"{plural} is empty: give one, or leave it out if any will do.")
    given = list(dict.fromkeys(filter(None, [first, *others])))
    return {name: given[0] if given else "", plural: given[1:]}


def not_empty(name: str, value: str | None) -> str:
    """Return the value for the wire. Raises InvalidArgument if it is given but empty."""
    # On the wire an empty value is no condition. A caller that computed an empty one did not mean that.
    if value == "":
        raise InvalidArgument(f"{name} is empty: give one, or leave it out if any will do.")
    return value or ""


def aware(name: str, moment: datetime | None) -> datetime | None:
    """Return the moment. Raises InvalidArgument if it has no time zone."""
    if isinstance(moment, datetime):
        check_aware(f"{name}={moment!r}", moment, sign="-")
    return moment


def names_of(field: str, names: Iterable[str]) -> list[str]:
    """Return the names as a list. Raises InvalidArgument for a string, which would be one name per letter."""
    if isinstance(names, str):
        raise InvalidArgument(f"{field}={names!r} is a string: give a list, such as {field}=[{names!r}].")
    if not isinstance(names, Iterable):
        raise InvalidArgument(f"{field} has to be a list of strings, but {names!r} was given.")
    return list(names)


@dataclass(frozen=True, slots=True)
class JobCount:
    """The number of matching jobs. Pass `counted_at` as `before` to change these jobs and no later ones."""

    count: int
    counted_at: datetime | None
    at_least: bool = False
    """True if there may be more: the newest 100,000 jobs were read."""


_job_count = Reader(JobCount)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch of an action on many jobs."""

    changed: int
    next_cursor: str | None
    """Pass it to the next batch. None if no matching job is left."""
    locked: int = 0
    """The number of jobs left unchanged because another database session has locked their rows. Try again."""
    held: int = 0
    """The number of jobs that were not retried because another job holds their unique key."""
    needed: int = 0
    """The number of jobs that were not deleted because their workflow has not ended."""
    in_canceled_workflows: int = 0
    """The number of jobs that were not retried because they wait for other jobs of canceled workflows."""
    canceled_workflows: tuple[str, ...] = ()
    """Ids of these workflows, at most five. Retry the workflows instead."""
    action_id: str = ""
    """The action in the audit. Pass it to the next batch, and to `undo`. Empty: the server is older."""


Request = TypeVar("Request")

# No batch is repeatable: the count of a lost answer would be missing from the total.


class SelectionVerbs:
    """The verbs of a `Pulse` for many jobs at once.

    The `…_batch` verbs change one batch of at most 500 jobs, the newest first. The `…_matching` verbs change
    all matching jobs and yield the running total after each batch; stop iterating to leave the rest as it is.
    `timeout` bounds each batch. Batches with the same `action_id`, a UUID, are one entry of the audit, which
    `undo` reverts.
    """

    _caller: Caller

    async def count_jobs(self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]) -> JobCount:
        """Count the matching jobs. Without a status, count unfinished jobs.

        More than 100,000 jobs are not counted to the end (`at_least`). Of completed jobs the newest
        100,000 of all topics are read: there may be millions. Pass `counted_at` as `before` to change the
        jobs that were counted and no later ones.
        """
        request = pb.CountJobsRequest(filter=job_filter(**which))
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.CountJobs, request, timeout)
        return _job_count(response)

    async def cancel_batch(
        self,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Cancel the newest matching jobs. Without a status, cancel unfinished jobs."""
        request = _step(pb.CancelJobsRequest, which, cursor, limit, reason=reason, action_id=action_id)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.CancelJobs, request, timeout, repeatable=False)
        return _batch(response.canceled, response)

    async def retry_batch(
        self,
        *,
        attempts: int | None = None,
        fresh: bool = False,
        now: bool = False,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Retry the newest matching jobs. Status: DEAD_LETTERED or CANCELED.

        Skips a job if another job holds its unique key, or if its workflow was canceled while it waited for
        other jobs of it: retry the workflow. A canceled job that never started keeps its later
        start time, unless `now`.
        """
        given = {"attempts": attempts, "fresh": fresh, "now": now, "reason": reason, "action_id": action_id}
        request = _step(pb.RetryJobsRequest, which, cursor, limit, **given)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.RetryJobs, request, timeout, repeatable=False)
        return replace(
            _batch(response.retried, response, held=response.held),
            in_canceled_workflows=response.in_canceled_workflows,
            canceled_workflows=tuple(response.canceled_workflows),
        )

    async def prioritize_batch(
        self,
        priority: int,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Change the priority of the newest matching jobs. Without a status, of unfinished jobs.

        The audit has the reason and the user.
        """
        given = {"priority": priority, "reason": reason, "action_id": action_id}
        request = _step(pb.PrioritizeJobsRequest, which, cursor, limit, **given)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(
            lambda stub: stub.PrioritizeJobs, request, timeout, repeatable=False
        )
        return _batch(response.prioritized, response)

    async def delete_batch(
        self,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Delete the newest matching jobs. Status: COMPLETED, DEAD_LETTERED or CANCELED."""
        request = _step(pb.DeleteJobsRequest, which, cursor, limit, reason=reason, action_id=action_id)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.DeleteJobs, request, timeout, repeatable=False)
        return _batch(response.deleted, response, needed=response.needed)

    def cancel_matching(
        self,
        *,
        reason: str = "",
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Cancel all matching jobs, batch by batch. Yields the running total."""
        return _all_of(
            lambda next_one: self.cancel_batch(reason=reason, timeout=timeout, **next_one, **which), action_id
        )

    def retry_matching(
        self,
        *,
        attempts: int | None = None,
        fresh: bool = False,
        now: bool = False,
        reason: str = "",
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Retry all matching jobs, batch by batch. Yields the running total. `fresh` forgets their steps."""
        return _all_of(
            lambda next_one: self.retry_batch(
                attempts=attempts, fresh=fresh, now=now, reason=reason, timeout=timeout, **next_one, **which
            ),
            action_id,
        )

    def prioritize_matching(
        self,
        priority: int,
        *,
        reason: str = "",
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Change the priority of all matching jobs, batch by batch. Yields the running total."""
        return _all_of(
            lambda next_one: self.prioritize_batch(
                priority, reason=reason, timeout=timeout, **next_one, **which
            ),
            action_id,
        )

    def delete_matching(
        self,
        *,
        reason: str = "",
        action_id: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Delete all matching jobs, batch by batch. Yields the running total."""
        return _all_of(
            lambda next_one: self.delete_batch(reason=reason, timeout=timeout, **next_one, **which), action_id
        )

    async def _refuse_older_servers(self, which: JobFilter, timeout: timedelta | None) -> None:
        """Raises an error if the server does not know lanes: it would take the jobs of all lanes."""
        if which.get("lane") is not None:
            topic = job_filter(**which).topic
            request = message(pb.ListLanesRequest, topic=topic, limit=1)
            await self._caller.call(lambda stub: stub.ListLanes, request, timeout)


def _step(
    kind: Callable[..., Request], which: JobFilter, cursor: str | None, limit: int | None, **fields: object
) -> Request:
    return message(kind, filter=job_filter(**which), limit=limit or 0, page_token=cursor or "", **fields)


class _NextBatch(TypedDict):
    """Where the next batch starts, and the action that it belongs to."""

    cursor: str | None
    action_id: str


def _batch(changed: int, response: Any, held: int = 0, needed: int = 0) -> Batch:
    return Batch(
        changed,
        response.next_page_token or None,
        response.locked,
        held,
        needed,
        action_id=response.action_id,
    )


async def _all_of(
    step: Callable[[_NextBatch], Awaitable[Batch]], action_id: str
) -> AsyncGenerator[int, None]:
    done, cursor, action_id = 0, None, action_id or uuid7()
    while True:
        batch = await step({"cursor": cursor, "action_id": action_id})
        done, cursor = done + batch.changed, batch.next_cursor
        yield done
        if cursor is None:
            return
