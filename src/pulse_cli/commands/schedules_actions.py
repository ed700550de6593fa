"""`pulse schedules create`, `update`, `pause`, `resume`, `delete` and `fire`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.failures import Misuse
from pulse_cli.inputs.payloads import payload_options, read_payload
from pulse_cli.inputs.questions import confirm
from pulse_cli.inputs.shared_options import reason_here, reason_option
from pulse_cli.inputs.specs import SpecOptions, read_spec, required_spec, spec_options
from pulse_cli.inputs.times import duration
from pulse_cli.inputs.values import WholeNumber, metadata_option, read_metadata
from pulse_cli.loops.bulk import act_on_each
from pulse_cli.views.output import output_here
from pulse_cli.views.schedules import describe_schedule, spec_text
from pulse_cli.views.shapes import handle_shape, schedule_shape, whole_schedule_shape

if TYPE_CHECKING:
    import pulse

CATCH_UPS = ("one", "skip", "all")
OVERLAPS = ("allow", "skip", "queue")


@click.command(
    "create",
    cls=Command,
    examples="""
        pulse schedules create clean-up --every 1h --name clean-up
        pulse schedules create send-report --cron '0 9 * * 1-5' --tz Europe/Paris --payload '{"to": "a@b.c"}'
        pulse schedules create remind --at 2030-01-31T09:00 --payload '{"what": "renew"}'
        pulse schedules create clean-up --every 30m --name clean-up --replace
    """,
)
@click.argument("topic")
@payload_options
@spec_options
@click.option("--name", help="A unique name; creating it again makes no second schedule.")
@click.option("--priority", type=int, default=0, show_default=True, help="The priority of its jobs.")
@click.option(
    "--max-attempts",
    type=WholeNumber(min=1),
    metavar="N",
    help="The attempts of its jobs; by the policy of the topic if not given.",
)
@click.option(
    "--start-within",
    type=duration,
    help="Cancel a job that has not started this long after its fire was due.",
)
@metadata_option
@click.option(
    "--catch-up",
    type=click.Choice(CATCH_UPS),
    default="one",
    show_default=True,
    help="Fires missed while no server ran: make up for one, none (skip) or all.",
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="allow",
    show_default=True,
    help="A fire while a job of it is unfinished: make another job, none (skip), or wait for it (queue).",
)
@click.option("--replace", is_flag=True, help="Change the schedule of this name if it exists.")
@reason_option
def create(
    topic: str,
    payload: str | None,
    file: str | None,
    source: str | None,
    raw: bool,
    name: str | None,
    priority: int,
    max_attempts: int | None,
    start_within: timedelta | None,
    metadata: tuple[str, ...],
    catch_up: pulse.CatchUp,
    overlap: pulse.Overlap,
    replace: bool,
    **when: Unpack[SpecOptions],
) -> None:
    """Create a schedule that submits a job on TOPIC whenever it fires."""
    spec = required_spec(when)
    args = read_payload(payload, file, source, raw=raw)
    output = output_here()
    with connected() as client:
        made = client.schedule(
            topic,
            args,
            spec,
            name=name,
            priority=priority,
            max_attempts=max_attempts,
            start_within=start_within,
            metadata=read_metadata(metadata),
            catch_up=catch_up,
            overlap=overlap,
            replace=replace,
            reason=reason_here(),
        )
        fires = client.schedules.preview(made.spec) if output.is_for_people and made.kind == "cron" else []
    output.show_one(whole_schedule_shape(made), lambda: describe_schedule(made, fires))


@click.command(
    "update",
    cls=Command,
    examples="""
        pulse schedules update clean-up --every 30m
        pulse schedules update morning-report --cron '30 8 * * 1-5' --tz Europe/Paris
        pulse schedules update morning-report --payload '{"to": "c@d.e"}'
    """,
)
@click.argument("schedule")
@payload_options
@spec_options
@click.option("--topic", help="The topic of its jobs.")
@click.option("--priority", type=int, help="The priority of its jobs.")
@click.option("--max-attempts", type=WholeNumber(min=1), metavar="N", help="The attempts of its jobs.")
@click.option(
    "--start-within",
    type=duration,
    help="Cancel a job that has not started this long after its fire was due; 0s: no limit.",
)
@metadata_option
@click.option("--catch-up", type=click.Choice(CATCH_UPS), help="What to do about missed fires.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="What to do while a job of it is unfinished.")
@reason_option
def update(
    schedule: str,
    payload: str | None,
    file: str | None,
    source: str | None,
    raw: bool,
    topic: str | None,
    priority: int | None,
    max_attempts: int | None,
    start_within: timedelta | None,
    metadata: tuple[str, ...],
    catch_up: pulse.CatchUp | None,
    overlap: pulse.Overlap | None,
    **when: Unpack[SpecOptions],
) -> None:
    """Change the given fields of a schedule. A new timetable starts now; its kind cannot change."""
    args = read_payload(payload, file, source, raw=raw)
    changes: dict[str, Any] = {
        "spec": read_spec(when),
        "topic": topic,
        "priority": priority,
        "max_attempts": max_attempts,
        "start_within": start_within,
        "metadata": read_metadata(metadata),
        "catch_up": catch_up,
        "overlap": overlap,
        "args": args,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        raise Misuse("Give what to change, for example --every 30m or --payload JSON.")
    with connected() as client:
        changed = client.schedules.update(schedule, reason=reason_here(), **changes)
    output_here().show_one(whole_schedule_shape(changed), lambda: describe_schedule(changed))


@click.command("pause", cls=Command, examples="pulse schedules pause morning-report")
@click.argument("names", metavar="SCHEDULE...", nargs=-1, required=True)
@reason_option
def pause(names: tuple[str, ...]) -> None:
    """Pause schedules until they are resumed."""
    with connected() as client:

        def act(name: str) -> pulse.ScheduleInfo:
            client.schedules.pause(name, reason=reason_here())
            return client.schedules.get(name)

        act_on_each(
            names,
            act,
            sentence=lambda s: f"Paused {_called(s)}. Resume with: pulse schedules resume {_called(s)}",
            shape=schedule_shape,
        )


@click.command("resume", cls=Command, examples="pulse schedules resume morning-report")
@click.argument("names", metavar="SCHEDULE...", nargs=-1, required=True)
@reason_option
def resume(names: tuple[str, ...]) -> None:
    """Resume schedules at their next fire. Fires missed during the pause are not made up."""
    with connected() as client:
        import pulse

        def act(name: str) -> pulse.ScheduleInfo:
            known = client.schedules.get(name)
            client.schedules.resume(known, reason=reason_here())
            try:
                return client.schedules.get(known)
            except pulse.NotFound:
                return known  # a one-time schedule that has fired

        act_on_each(
            names,
            act,
            sentence=lambda s: f"Resumed {_called(s)}: {spec_text(s.spec)}.",
            shape=schedule_shape,
        )


@click.command(
    "delete",
    cls=Command,
    examples="pulse schedules delete morning-report\npulse schedules delete morning-report --yes",
)
@click.argument("names", metavar="SCHEDULE...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Delete schedules. Their jobs are kept."""
    what = f"the schedule {names[0]}" if len(names) == 1 else f"{len(names)} schedules"
    confirm(f"Delete {what}?", yes=yes)
    with connected() as client:

        def act(name: str) -> pulse.ScheduleInfo:
            known = client.schedules.get(name)
            client.schedules.delete(known, reason=reason_here())
            return known

        act_on_each(names, act, sentence=lambda s: f"Deleted {_called(s)}.", shape=schedule_shape)


@click.command("fire", cls=Command, examples="pulse schedules fire morning-report")
@click.argument("schedule")
@reason_option
def fire(schedule: str) -> None:
    """Submit the schedule's job now. Its timetable does not change."""
    with connected() as client:
        handle = client.schedules.fire(schedule, reason=reason_here())
    output = output_here()
    if output.form == "plain":
        click.echo(handle.id)
    else:
        output.show_done(f"Submitted {handle.id} on {handle.topic}.", handle_shape(handle))


def _called(schedule: pulse.ScheduleInfo) -> str:
    return schedule.name or schedule.id
