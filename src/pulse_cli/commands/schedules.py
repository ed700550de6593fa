"""`pulse schedules`: list, get, fires and preview; schedules_actions.py has the actions."""

from __future__ import annotations

from typing import Unpack

import click

from pulse_cli.commands.declaring import Group
from pulse_cli.commands.schedules_actions import create, delete, fire, pause, resume, update
from pulse_cli.commands.schedules_prune import prune
from pulse_cli.connection.connecting import connected
from pulse_cli.failures import Misuse
from pulse_cli.inputs.numbers import WholeNumber
from pulse_cli.inputs.paging import paging_options
from pulse_cli.inputs.specs import SpecOptions, read_spec, required_spec, spec_options
from pulse_cli.loops.pages import collect, hint_at_more
from pulse_cli.views.output import output_here
from pulse_cli.views.schedules import describe_schedule, fire_view, preview_view, schedule_view
from pulse_cli.views.shapes import whole_schedule_shape


@click.group(
    cls=Group,
    examples="""
        pulse schedules list
        pulse schedules create send-report --cron '0 9 * * 1-5' --tz Europe/Paris --name morning-report
        pulse schedules pause morning-report
    """,
)
def schedules() -> None:
    """Create, list and change schedules. A schedule is given by its name or its id."""


@schedules.command("list", examples="pulse schedules list\npulse schedules list --output json")
@paging_options
def list_schedules(limit: int, everything: bool, cursor: str | None) -> None:
    """List schedules, oldest first."""
    with connected() as client:
        found, more = collect(
            lambda size, at: client.schedules.list(limit=size, cursor=at), limit, everything, cursor
        )
    empty = "There are no schedules yet. Create one with: pulse schedules create TOPIC --every 1h --name NAME"
    output_here().show_list(found, schedule_view(), empty)
    hint_at_more(more)


@schedules.command("get", examples="pulse schedules get morning-report")
@click.argument("schedule")
def get(schedule: str) -> None:
    """Show a schedule and its next fires."""
    output = output_here()
    with connected() as client:
        found = client.schedules.get(schedule)
        fires = client.schedules.preview(found.spec) if output.is_for_people and found.kind == "cron" else []
    output.show_one(whole_schedule_shape(found), lambda: describe_schedule(found, fires))


for _action in (create, update, pause, resume, delete, prune, fire):
    schedules.add_command(_action)


@schedules.command("fires", examples="pulse schedules fires morning-report --limit 10")
@click.argument("schedule")
@paging_options
def fires(schedule: str, limit: int, everything: bool, cursor: str | None) -> None:
    """List the past fires of a schedule, newest first, with the status of each job."""
    with connected() as client:
        found, more = collect(
            lambda size, at: client.schedules.fires(schedule, limit=size, cursor=at),
            limit,
            everything,
            cursor,
        )
    empty = f"{schedule} has not fired yet. `pulse schedules get {schedule}` shows its next fires."
    output_here().show_list(found, fire_view(), empty)
    hint_at_more(more)


@schedules.command(
    "preview",
    examples="""
        pulse schedules preview morning-report
        pulse schedules preview --cron '0 9 * * 1-5' --tz Europe/Paris
        pulse schedules preview --every 90m --count 3
    """,
)
@click.argument("schedule", required=False)
@spec_options
@click.option(
    "--count",
    type=WholeNumber(1, 100),
    default=5,
    show_default=True,
    metavar="N",
    help="The number of fires.",
)
def preview(schedule: str | None, count: int, **when: Unpack[SpecOptions]) -> None:
    """Preview the next fires of an existing schedule, or of a timetable given by options. Stores nothing."""
    if schedule is not None and read_spec(when) is not None:
        raise Misuse("Give a schedule or a timetable, not both.")
    with connected() as client:
        spec = required_spec(when) if schedule is None else client.schedules.get(schedule).spec
        moments = client.schedules.preview(spec, count)
    output_here().show_list(moments, preview_view(), "It would never fire.")
