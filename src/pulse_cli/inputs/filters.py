"""The filter of jobs: the options that lists and actions share, and the filter in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse_cli.inputs.times import past_moment
from pulse_cli.inputs.values import complete_status, is_whole_id, read_metadata, status
from pulse_cli.text import local
from pulse_text.jobs import STATUSES

if TYPE_CHECKING:
    from pulse import JobFilter, SyncPulse

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Which:
    """The conditions that jobs must meet; None for no condition."""

    topics: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    since: datetime | None = None
    before: datetime | None = None
    schedule: str | None = None
    error: str | None = None
    metadata: Mapping[str, str] | None = None
    error_group: str | None = None
    lane: str | None = None

    @property
    def is_any(self) -> bool:
        """True if there is no condition."""
        return self == Which()

    def words(self, count: int | None = None) -> str:
        """Return the filter in words: 10,000 DEAD_LETTERED jobs on send-email, submitted since …"""
        number = "" if count is None else f"{count:,}"
        noun = "job" if count == 1 else "jobs"
        on = f"on {either(self.topics)}" if self.topics else ""
        parts = [" ".join(filter(None, [number, either(self.statuses), noun, on]))]
        parts += [f"in the lane {self.lane}"] if self.lane else []
        parts += [f"submitted since {local(self.since)}"] if self.since else []
        parts += [f"submitted before {local(self.before)}"] if self.before else []
        parts += [f"made by {self.schedule}"] if self.schedule else []
        parts += [f"with {self.error!r} in the error"] if self.error else []
        parts += [f"with {name}={value}" for name, value in (self.metadata or {}).items()]
        parts += [f"of the group {self.error_group}"] if self.error_group else []
        return ", ".join(parts)


def either(names: Sequence[str]) -> str:
    """Return the names as a, b or c."""
    *others, last = names or ("",)
    return f"{', '.join(others)} or {last}" if others else last


def filter_options(command: F) -> F:
    """Add the filter options. The command receives them as `which`."""

    @wraps(command)
    def with_filter(
        *args: Any,
        topics: tuple[str, ...],
        statuses: tuple[str, ...],
        since: datetime | None,
        before: datetime | None,
        schedule: str | None,
        error: str | None,
        where: tuple[str, ...],
        error_group: str | None,
        lane: str | None,
        **others: Any,
    ) -> Any:
        if error_group:  # only dead letters have a group
            statuses = statuses or ("DEAD_LETTERED",)
        if lane is not None and len(set(topics)) != 1:
            raise click.UsageError("A lane belongs to a topic: give --topic as well, once.")
        metadata = read_metadata(where)
        topics, statuses = tuple(dict.fromkeys(topics)), tuple(dict.fromkeys(statuses))
        which = Which(topics, statuses, since, before, schedule, error, metadata, error_group, lane)
        return command(*args, which=which, **others)

    decorated: Any = with_filter
    for decorate in (
        click.option(
            "--error-group",
            metavar="GROUP",
            help="Only dead letters of this group; `pulse dead-letters` lists them.",
        ),
        click.option(
            "--metadata",
            "where",
            multiple=True,
            metavar="NAME=VALUE",
            help="Only jobs with this metadata; repeatable.",
        ),
        click.option("--error", metavar="TEXT", help="Only jobs with this text in their last error."),
        click.option("--schedule", metavar="NAME|ID", help="Only jobs of this schedule."),
        click.option(
            "--before", type=past_moment, metavar="TIME", help="Only jobs submitted before this time."
        ),
        click.option(
            "--since",
            type=past_moment,
            metavar="TIME",
            help="Only jobs submitted since this time: 2h for two hours ago, or 2030-01-31T09:00.",
        ),
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=status,
            shell_complete=complete_status,
            help=f"Only jobs in this status; repeatable: {', '.join(STATUSES)}.",
        ),
        click.option("--lane", metavar="LANE", help="Only jobs in this lane of the topic."),
        click.option("--topic", "topics", multiple=True, help="Only jobs on this topic; repeatable."),
    ):
        decorated = decorate(decorated)
    return decorated  # type: ignore[no-any-return]  # it takes other keywords, and only click calls it


def job_filter(client: SyncPulse, which: Which) -> JobFilter:
    """Return the filter for the SDK. A schedule given by name is looked up."""
    schedule = which.schedule
    if schedule and not is_whole_id(schedule):  # a deleted schedule has left jobs, and only its id is known
        schedule = client.schedules.get(schedule).id
    return {
        "topics": which.topics or None,
        "statuses": which.statuses or None,
        "since": which.since,
        "before": which.before,
        "schedule_id": schedule,
        "error_contains": which.error,
        "metadata": which.metadata,
        "error_group": which.error_group,
        "lane": which.lane,
    }
