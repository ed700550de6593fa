"""The options of a handler that limit its jobs, checked where they are written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypedDict

from pulse.checks import check_duration
from pulse.errors import InvalidArgument
from pulse.models.flow import Concurrency, FlowPolicy, Rate

_LONGEST_AGING = timedelta(days=365)
_KINDS: Mapping[str, tuple[type, str]] = {
    "limit": (Concurrency, "pulse.Concurrency(10)"),
    "rate": (Rate, "pulse.Rate(100, per=timedelta(minutes=1))"),
    "pool": (str, '"gpu"'),
    "per_lane": (Concurrency, "pulse.Concurrency(1)"),
    "lane_rate": (Rate, "pulse.Rate(10, per=timedelta(seconds=1))"),
    "turns": (bool, "True"),
    "ordered": (bool, "True"),
}


class FlowOptions(TypedDict, total=False):
    """The options of a handler that limit its jobs, in the whole cluster."""

    limit: Concurrency | None
    """How many run at once."""
    rate: Rate | None
    """How many start in a period."""
    pool: str | None
    """Limit and rate count over all topics of the pool."""
    per_lane: Concurrency | None
    """How many of one lane run at once. The lane is given at `enqueue`."""
    lane_rate: Rate | None
    """How many of one lane start in a period."""
    turns: bool
    """Lanes take turns, so that one with many jobs does not delay the others."""
    ordered: bool
    """One job of a lane at a time, in order; a job that is retried holds its lane."""
    aging: timedelta | None
    """Of waiting that is worth one step of priority, so that no job waits for ever."""


FLOW_OPTIONS = tuple(FlowOptions.__annotations__)


def make_flow_policy(given: Mapping[str, Any]) -> FlowPolicy:
    """Return the limits. Raises InvalidArgument for one that is wrong."""
    values = {name: value for name, value in given.items() if value is not None}
    check_flow_entries(values)
    if values.get("pool") is not None and not (values.get("limit") or values.get("rate")):
        raise InvalidArgument("pool shares a limit or a rate with other topics: give one of them as well.")
    # False is as if it were not given: code can only ask for more.
    return FlowPolicy(**{name: value for name, value in values.items() if value is not False})


def check_flow_entries(values: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for an entry of the wrong kind, and for entries that contradict each other."""
    for name, (kind, example) in _KINDS.items():
        if name in values and not isinstance(values[name], kind):
            raise InvalidArgument(
                f"{name} has to be such as {name}={example}, but {values[name]!r} was given."
            )
    if "aging" in values:
        check_duration("aging", values["aging"])
        if values["aging"] > _LONGEST_AGING:
            raise InvalidArgument(f"aging has to be at most {_LONGEST_AGING.days} days.")
    per_lane = values.get("per_lane")
    if values.get("ordered") and per_lane not in (None, Concurrency(1)):
        raise InvalidArgument(
            f"ordered=True runs one job of a lane at a time, but per_lane={per_lane.limit} was given: "
            "leave it out."
        )
