"""`pulse limits` and `pulse lanes`: the limits of topics, who set them, and their use."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import click

from pulse_cli.commands.declaring import GroupThatShows
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs import limits as inputs
from pulse_cli.inputs.consequences import confirm_harm
from pulse_cli.inputs.policies import DEFAULT
from pulse_cli.inputs.policies import limit as duration_or_default
from pulse_cli.inputs.shared_options import reason_here, reason_option
from pulse_cli.inputs.times import duration
from pulse_cli.inputs.values import WholeNumber
from pulse_cli.views.limits import ENTRIES, describe_limits, lane_view, limits_shape, limits_view
from pulse_cli.views.output import output_here
from pulse_text import consequences

if TYPE_CHECKING:
    from pulse import SyncPulse, TopicLimits

_NAMES = {title: name for name, title in ENTRIES}


@click.group(
    cls=GroupThatShows,
    examples="""
        pulse limits
        pulse limits sync-crm
        pulse limits set sync-crm --running 5 --rate 100/min
        pulse limits hold sync-crm --for 2m
        pulse limits reset sync-crm
    """,
)
def limits() -> None:
    """Show and set limits: how many jobs of a topic run at once, how many start, and whose turn it is.

    `pulse limits TOPIC` shows the limits of one topic. An entry set here overrides the entry that
    workers declare in code, until it is reset. If workers declare different limits, the strictest
    applies.
    """


@limits.command(
    "show",
    short_help="Show what limits topics, and where it stands.",
    examples="""
        pulse limits
        pulse limits sync-crm
        pulse limits show sync-crm -o json
    """,
)
@click.argument("topic", required=False)
def show(topic: str | None) -> None:
    """Show the limits of a topic, who set them, how many jobs run, and when the next job starts."""
    with connected() as client:
        found = client.limits(names=[topic] if topic is not None else ())
    if topic is None:
        output_here().show_list(found, limits_view(), "No topic has limits. Set one: pulse limits set TOPIC")
    else:
        _show_one(topic, found)


@limits.command(
    "set",
    short_help="Set limits of a topic.",
    examples="""
        pulse limits set sync-crm --running 5 --rate 100/min
        pulse limits set sync-crm --per-lane 1 --lane-rate 10/s
        pulse limits set render --running 8 --pool gpu
        pulse limits set mails --turns --aging 5m
        pulse limits set mails --running default
    """,
)
@click.argument("topic")
@click.option("--running", type=inputs.concurrency, metavar="N", help="Jobs that run at once.")
@click.option("--rate", type=inputs.rate, metavar="RATE", help="Jobs that start in a period, as 100/min.")
@click.option("--per-lane", type=inputs.concurrency, metavar="N", help="Jobs of one lane that run at once.")
@click.option(
    "--lane-rate", type=inputs.rate, metavar="RATE", help="Jobs of one lane that start in a period."
)
@click.option("--turns/--no-turns", default=None, help="Lanes take turns.")
@click.option(
    "--ordered/--no-ordered",
    default=None,
    help="One job of a lane at a time, in order; a job that is retried holds its lane.",
)
@click.option(
    "--aging",
    type=duration_or_default,
    metavar="DURATION",
    help="How long a job waits for one more step of priority, such as 5m.",
)
@click.option("--pool", metavar="NAME", help="Count --running and --rate over all topics of this pool.")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def set_limits(
    topic: str,
    yes: bool,
    running: Any,
    rate: Any,
    per_lane: Any,
    lane_rate: Any,
    turns: bool | None,
    ordered: bool | None,
    aging: Any,
    pool: str | None,
) -> None:
    """Set limits of TOPIC, for all servers and workers, at once.

    If a transaction has running jobs of TOPIC locked, as after ctx.complete, the limits come into
    force once it has ended. The output then names it.

    Options that are not given do not change. The value `default` returns an entry to the value that
    workers declare in code. Asks first if more jobs run than the new limits let run, in all topics
    of the pool; --yes skips it.
    """
    given = {
        "limit": running,
        "rate": rate,
        "per_lane": per_lane,
        "lane_rate": lane_rate,
        "turns": turns,
        "ordered": ordered,
        "aging": aging,
        "pool": pool,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError(f"Give a limit: pulse limits set {topic} --running 5")
    with connected() as client:
        _change(client, topic, changes, yes=yes)


@limits.command(
    "reset",
    short_help="Hand limits of a topic back to the code.",
    examples="""
        pulse limits reset sync-crm
        pulse limits reset sync-crm running rate
    """,
)
@click.argument("topic")
@click.argument("entries", nargs=-1, type=click.Choice(list(_NAMES)), metavar="[ENTRY]...")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(topic: str, entries: tuple[str, ...], yes: bool) -> None:
    """Return limits of TOPIC to the values that its workers declare.

    Without entries, all limits are reset. The entries are running, rate, pool, per-lane, lane-rate,
    turns, ordered and aging. Asks first if more jobs run than the workers' limits let run; --yes
    skips it.
    """
    names = [_NAMES[entry] for entry in entries] or [name for name, _ in ENTRIES]
    with connected() as client:
        _change(client, topic, dict.fromkeys(names, DEFAULT), yes=yes)


@limits.command(
    "hold",
    short_help="Start no job of a topic for a while.",
    examples="""
        pulse limits hold sync-crm --for 2m
        pulse limits hold sync-crm --for 0s
    """,
)
@click.argument("topic")
@click.option("--for", "span", type=duration, required=True, help="For how long; 0s ends the hold.")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def hold(topic: str, span: timedelta, yes: bool) -> None:
    """Start no job of TOPIC and its pool for a while, at any server. Running jobs continue.

    The topic needs limits; `pulse dispatch pause --topic` pauses any topic. The longest of several
    holds counts. Asks first if jobs run; --yes skips it.
    """
    with connected() as client:
        confirm_harm(client, consequences.hold(topic, span), yes=yes)
        client.hold(topic, span, reason=reason_here())
        found = client.limits(names=[topic])
    _show_one(topic, found)


def _change(client: SyncPulse, topic: str, changes: dict[str, Any], *, yes: bool) -> None:
    confirm_harm(client, consequences.tighter_limits(topic, changes), yes=yes)
    policy = client.set_limits(topic, reason=reason_here(), **changes)
    _show_one(topic, client.limits(names=[topic]), policy.limits_pending)


def _show_one(topic: str, found: list[TopicLimits], pending: str = "") -> None:
    """`pending` was the answer to a change. The server that listed the limits may not know of it yet."""
    if found:
        (known,) = found
        known = replace(known, pending=known.pending or pending)
        output_here().show_one(limits_shape(known), lambda: describe_limits(known))
        return
    from pulse import LimitPolicy, TopicLimits

    nothing = TopicLimits(topic, LimitPolicy(), 0, None, None, pending=pending)
    if pending:
        output_here().show_one(limits_shape(nothing), lambda: describe_limits(nothing))
        return
    output_here().show_done(f"{topic} has no limits.", limits_shape(nothing))


@click.group(
    cls=GroupThatShows,
    examples="""
        pulse lanes sync-crm
        pulse lanes sync-crm --sort share
        pulse lanes set sync-crm customer-42 --weight 3 --limit 5
    """,
)
def lanes() -> None:
    """Show the lanes of a topic, and set the weight and the limit of one lane.

    A lane is a key that limits count by, such as a customer. It is given when a job is submitted.
    """


@lanes.command(
    "show",
    short_help="Show the lanes of a topic.",
    examples="""
        pulse lanes sync-crm
        pulse lanes show sync-crm --sort share --limit 10
    """,
)
@click.argument("topic")
@click.option(
    "--sort",
    "by",
    type=click.Choice(["wait", "share"]),
    default="wait",
    show_default=True,
    help="By the longest wait, or by the most running jobs.",
)
@click.option("--limit", type=WholeNumber(1, 1000), default=50, show_default=True, help="So many lanes.")
def show_lanes(topic: str, by: Literal["wait", "share"], limit: int) -> None:
    """Show the recently used lanes of TOPIC: their jobs, and when the next job starts."""
    with connected() as client:
        found = client.lanes(topic, by=by, limit=limit)
    output_here().show_list(
        found,
        lane_view(),
        f"{topic} has no lanes. Set a limit of each: pulse limits set {topic} --per-lane 1",
    )


@lanes.command(
    "set",
    short_help="Set the weight and the limit of one lane.",
    examples="""
        pulse lanes set sync-crm customer-42 --weight 3
        pulse lanes set sync-crm customer-42 --weight 3 --limit 5
    """,
)
@click.argument("topic")
@click.argument("lane")
@click.option("--weight", type=WholeNumber(1, 1000), help="Jobs in a turn, against 1 of the others.")
@click.option("--limit", type=inputs.concurrency, metavar="N", help="Jobs that run at once.")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def set_lane(topic: str, lane: str, weight: int | None, limit: Any, yes: bool) -> None:
    """Set the weight and the limit of one LANE of TOPIC. A missing option is reset.

    Asks first if more of its jobs run than the limit lets run; --yes skips it.
    """
    own = None if limit == "default" else limit
    with connected() as client:
        most = None if own is None else own.limit
        confirm_harm(client, consequences.lower_lane_limit(topic, lane, most), yes=yes)
        client.set_lane(topic, lane, weight=weight, limit=own, reason=reason_here())
    shape = {
        "topic": topic,
        "lane": lane,
        "weight": weight or 1,
        "limit": None if own is None else own.limit,
    }
    words = (
        f"weight {weight or 1}, {'the limit of all lanes' if own is None else f'at most {own.limit} at once'}"
    )
    output_here().show_done(f"Set {lane} of {topic}: {words}.", shape)
