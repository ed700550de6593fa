"""`pulse schedules`: list, get, fires, preview and prune; schedules_actions.py has the actions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Unpack

import click

from pulse_cli.commands.schedules_actions import (
    SpecOptions,
    create,
    delete,
    fire,
    pause,
    read_spec,
    required_spec,
    reset,
    resume,
    spec_options,
    update,
)
from pulse_cli.connection import connected
from pulse_cli.declaring import Command, Group
from pulse_cli.failures import Misuse
from pulse_cli.inputs import WholeNumber, confirm, paging_options, reason_here, reason_option
from pulse_cli.jobs.bulk import act_on_each
from pulse_cli.output import collect, hint_at_more, output_here, table
from pulse_cli.terminal import hint, print_lines
from pulse_cli.views.schedules import describe_schedule, fire_view, preview_view, schedule_view
from pulse_cli.views.shapes import schedule_shape, whole_schedule_shape

if TYPE_CHECKING:
    import pulse


@click.command(
    "prune",
    cls=Command,
    examples="""
        pulse schedules prune --declared-by shop.app --dry-run
        pulse schedules prune --declared-by shop.app
        pulse schedules prune --declared-by shop.app --yes
    """,
)
@click.option(
    "--declared-by", "application", metavar="APP", help="The application, as `schedules list` shows it."
)
@click.option("--dry-run", is_flag=True, help="List them and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
def prune(application: str | None, dry_run: bool, yes: bool) -> None:
    """Delete the schedules that an application declared in its code earlier, and declares no longer.

    An application reports which schedules its code declares whenever one of its workers starts. Schedules
    that were created otherwise are never pruned. Jobs that they made are kept.
    """
    output = output_here()
    with connected() as client:
        if application is None:
            raise Misuse(f"Name the application: --declared-by APP. {_known(client.schedules.vanished())}")
        found = client.schedules.vanished(application)
        if not found or dry_run:
            empty = f"No schedule has vanished from the code of {application}."
            output.show_list(found, schedule_view(), empty)
            return
        if output.is_for_people and not yes:
            print_lines(table(found, schedule_view()))
        what = "this schedule" if len(found) == 1 else f"these {len(found):,} schedules"
        confirm(f"Delete {what}, which {application} no longer declares?", yes=yes)
        named = {schedule.id: schedule for schedule in found}
        kept: list[pulse.ScheduleInfo] = []

        def act(schedule_id: str) -> pulse.ScheduleInfo:
            known = client.schedules.get(named[schedule_id])
            if known.vanished_at is None:
                kept.append(known)
            else:
                client.schedules.delete(known, reason=reason_here())
            return known

        act_on_each(named, act, sentence=_sentence, shape=schedule_shape)
    if kept:
        hint(f"{len(kept):,} were declared again meanwhile, and were kept.")


def _sentence(schedule: pulse.ScheduleInfo) -> str:
    name = schedule.name or schedule.id
    return f"Deleted {name}." if schedule.vanished_at else f"Kept {name}: it was declared again meanwhile."


def _known(vanished: list[pulse.ScheduleInfo]) -> str:
    counts = Counter(schedule.declared_by or "" for schedule in vanished)
    if not counts:
        return "No schedule has vanished from the code of any application."
    listed = ", ".join(f"{application} ({count:,})" for application, count in sorted(counts.items())[:10])
    return f"Applications with schedules that have vanished from their code: {listed}."


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


for _action in (create, update, reset, pause, resume, delete, prune, fire):
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
