"""`pulse schedules prune`: delete schedules that have vanished from the code of their application."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.failures import Misuse
from pulse_cli.inputs.questions import confirm
from pulse_cli.loops.one_by_one import act_on_each
from pulse_cli.views.output import output_here, table
from pulse_cli.views.schedules import schedule_view
from pulse_cli.views.shapes import schedule_shape
from pulse_cli.views.terminal import hint, print_lines

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
                client.schedules.delete(known)
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
