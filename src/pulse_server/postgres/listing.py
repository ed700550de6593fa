"""Builds the statements that list and count jobs by a filter.

The conditions are part of the text: `$1 IS NULL OR …` would leave the planner no index. Each arm
reads one partial index in its order, so the cost of a page depends on its size alone: a list of
live jobs never steps over finished ones, and a list of dead letters never over successes. Completed
jobs have a separate arm, and a few of them are in pulse.jobs (ADR-0057).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from pulse_server.base.ids import PageKey
from pulse_server.domain.jobs import JobFilter
from pulse_server.domain.status import LIVE, TERMINAL, JobStatus

_ORDER = "ORDER BY submitted_at DESC, id DESC"
_UNSUCCESSFUL = TERMINAL - {JobStatus.COMPLETED}
# By the lease checks, as in the fragment running_jobs: no index contains the running jobs.
_RUNS = (
    "locked_by IS NOT NULL AND id = ANY (ARRAY("
    "SELECT unnest(ids) FROM pulse.lease_checks WHERE settled UNION ALL SELECT unnest(ids) "
    "FROM pulse.lease_checks WHERE NOT settled AND check_at > now() - interval '1 minute'))"
)


class Listing:
    """A statement under construction, with its arguments. The section `name` reads pulse.jobs, and
    the section `name`_completed reads completed_jobs."""

    def __init__(
        self,
        sections: Mapping[str, str],
        name: str,
        wanted: JobFilter,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> None:
        self.arguments: list[object] = []
        # The comment with the section's name comes first, as everywhere.
        self._label, _, statement = sections[name].rpartition("*/ ")
        conditions = self._conditions(wanted, after, until)
        self._arms = [f"{statement} AND {arm}{conditions}" for arm in _arms(wanted)]
        if _may_be_completed(wanted):
            completed = sections[f"{name}_completed"].rpartition("*/ ")[2]
            # topic >= '' opens the index completed_jobs_newest. Jobs of a schedule, of a lane and with
            # an error have other indexes.
            has_index = _has_error(wanted) or wanted.schedule_id is not None or wanted.lane is not None
            opened = "" if has_index else " AND topic >= ''"
            self._arms.append(completed + opened + conditions)

    def page(self, *, limit: int, offset: int = 0) -> str:
        """The statement for one page, newest first."""
        reach = self.parameter(limit + offset)
        arms = " UNION ALL ".join(f"({arm} {_ORDER} LIMIT {reach})" for arm in self._arms)
        window = f"LIMIT {self.parameter(limit)} OFFSET {self.parameter(offset)}"
        return f"{self._label}*/ SELECT * FROM ({arms}) AS found {_ORDER} {window}"

    def count(self, most: int | None = None) -> str:
        """The statement that counts matching jobs, of each arm `most` at the most."""
        bound = "" if most is None else f" LIMIT {self.parameter(most)}"
        arms = " + ".join(f"(SELECT count(*) FROM ({arm}{bound}) AS found)" for arm in self._arms)
        return f"{self._label}*/ SELECT {arms} AS jobs"

    def _conditions(self, wanted: JobFilter, after: PageKey | None, until: PageKey | None) -> str:
        conditions = ""
        if wanted.topics is not None:
            # Of one topic, the planner knows how many jobs to expect.
            first, *others = sorted(wanted.topics)
            conditions += (
                f" AND topic = ANY({self.parameter([first, *others])}::text[])"
                if others
                else f" AND topic = {self.parameter(first)}"
            )
        if wanted.schedule_id is not None:
            conditions += f" AND schedule_id = {self.parameter(wanted.schedule_id)}::uuid"
        if wanted.submitted_since is not None:
            conditions += f" AND submitted_at >= {self.parameter(wanted.submitted_since)}"
        if wanted.submitted_before is not None:
            conditions += f" AND submitted_at < {self.parameter(wanted.submitted_before)}"
        if _has_error(wanted):
            conditions += " AND last_error IS NOT NULL"
        if wanted.error_contains is not None:
            conditions += (
                f" AND strpos(lower(last_error), lower({self.parameter(wanted.error_contains)})) > 0"
            )
        if wanted.metadata is not None:
            conditions += f" AND metadata @> {self.parameter(json.dumps(dict(wanted.metadata)))}::text::jsonb"
        if wanted.error_group is not None:
            # error_group >= '' is true of every row, and opens the index jobs_dead_letters.
            conditions += f" AND error_group = {self.parameter(wanted.error_group)} AND error_group >= ''"
        if wanted.lane is not None:
            # lane > '' is true of every lane, and opens the indexes of lanes.
            conditions += f" AND lane = {self.parameter(wanted.lane)} AND lane > ''"
        if after is not None:
            last = f"{self.parameter(after.moment)}, {self.parameter(after.id)}::uuid"
            conditions += f" AND (submitted_at, id) < ({last})"
        if until is not None:
            last = f"{self.parameter(until.moment)}, {self.parameter(until.id)}::uuid"
            conditions += f" AND (submitted_at, id) >= ({last})"
        return conditions

    def require(self, condition: str) -> None:
        """Add a condition on the rows of each section."""
        self._arms = [f"{arm} AND {condition}" for arm in self._arms]

    def parameter(self, value: str | int | datetime | list[str]) -> str:
        """Add an argument. Returns its place in the text."""
        self.arguments.append(value)
        return f"${len(self.arguments)}"


def _arms(wanted: JobFilter) -> list[str]:
    """Conditions that together select the statuses, each served by one index."""
    statuses = wanted.statuses
    if wanted.schedule_id is not None:  # its index has jobs of any status
        return ["true" if statuses is None else _is_one_of(statuses)]
    is_of_lane = wanted.lane is not None  # its index has jobs of any status, too, and that of errors
    if statuses is None:
        has_index = is_of_lane or _has_error(wanted)
        return ["true"] if has_index else ["finished_at IS NULL", "finished_at IS NOT NULL"]
    arms = []
    if (live := statuses & LIVE) == {JobStatus.RUNNING}:
        arms.append(_RUNS)
    elif live and is_of_lane:
        arms.append(_is_one_of(live))
    elif live:
        arms.append("finished_at IS NULL" + ("" if live == LIVE else f" AND {_is_one_of(live)}"))
    if statuses >= TERMINAL:
        return [*arms, "finished_at IS NOT NULL"]
    if JobStatus.COMPLETED in statuses:
        arms.append("finished_at IS NOT NULL AND ended_as IS NULL")
    # Only these statuses are in an index, as ended_as: claims write the status. ADR-0056
    return arms + [f"ended_as = '{status.value}'" for status in sorted(statuses & _UNSUCCESSFUL)]


def _has_error(wanted: JobFilter) -> bool:
    return wanted.has_error or wanted.error_contains is not None


def _may_be_completed(wanted: JobFilter) -> bool:
    is_asked_for = wanted.statuses is None or JobStatus.COMPLETED in wanted.statuses
    return is_asked_for and wanted.error_group is None  # only dead letters have one


def _is_one_of(statuses: set[JobStatus] | frozenset[JobStatus]) -> str:
    # As literals from our own enum, so that the planner can prove the predicates of partial indexes.
    names = ", ".join(f"'{status.value}'" for status in sorted(statuses))
    return f"status IN ({names})" if len(statuses) > 1 else f"status = {names}"
