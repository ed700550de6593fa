"""`pulse lanes`: the lanes of a topic, by how long they wait or by their share."""

from __future__ import annotations

from typing import Any, Literal

import click

from pulse_cli.commands.declaring import GroupThatShows
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs import limits as inputs
from pulse_cli.inputs.numbers import WholeNumber
from pulse_cli.views.limits import lane_view
from pulse_cli.views.output import output_here


@click.group(
    cls=GroupThatShows,
    examples="""
        pulse lanes sync-crm
        pulse lanes sync-crm --sort share
        pulse lanes set sync-crm customer-42 --weight 3 --limit 5
    """,
)
def lanes() -> None:
    """Show the lanes of a topic, and give one of them more or less than the others.

    A lane is what limits count by, such as a customer; it is given when a job is submitted.
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
def show(topic: str, by: Literal["wait", "share"], limit: int) -> None:
    """Show the lanes of TOPIC that were used lately: what waits and runs, and when the next job starts."""
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
def set_lane(topic: str, lane: str, weight: int | None, limit: Any) -> None:
    """Set what holds for one LANE of TOPIC. What is not given is as for the other lanes."""
    own = None if limit == "default" else limit
    with connected() as client:
        client.set_lane(topic, lane, weight=weight, limit=own)
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
