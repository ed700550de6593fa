"""`pulse schedules`, and the timetable of a schedule as options: --every, --cron with --tz, --at, --after."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Command, Group
from pulse_cli.failures import Misuse
from pulse_cli.inputs import (
    WholeNumber,
    confirm,
    confirm_harm,
    duration,
    metadata_option,
    moment,
    paging_options,
    payload_options,
    read_metadata,
    read_payload,
    reason_here,
    reason_option,
)
from pulse_cli.jobs.bulk import act_on_each
from pulse_cli.jobs.views import handle_shape
from pulse_cli.output import collect, hint_at_more, output_here, table
from pulse_cli.schedules.views import (
    describe_changes,
    describe_schedule,
    fire_view,
    preview_view,
    schedule_shape,
    schedule_view,
    spec_text,
    whole_schedule_shape,
)
from pulse_cli.terminal import hint, print_lines
from pulse_text import consequences
from pulse_text.schedules import ENTRIES, is_in_code

if TYPE_CHECKING:
    import pulse

    _Spec: TypeAlias = pulse.At | pulse.After | pulse.Every | pulse.Cron

F = TypeVar("F", bound=Callable[..., Any])


# ---------------------------------------------------------------- timetables


class SpecOptions(TypedDict):
    """The values of the options."""

    every: timedelta | None
    cron: str | None
    tz: str | None
    at: datetime | None
    after: timedelta | None


def spec_options(command: F) -> F:
    """Add the options of a timetable."""
    for decorate in (
        click.option("--after", type=duration, help="Once, this long from now."),
        click.option(
            "--at",
            type=moment,
            metavar="TIME",
            help="Once, at this time; in this machine's zone unless given.",
        ),
        click.option(
            "--tz",
            metavar="ZONE",
            help="The time zone of --cron, such as Europe/Paris; if not given UTC, and in `update` as it is.",
        ),
        click.option(
            "--cron",
            metavar="EXPRESSION",
            help="A cron expression of five fields, @daily and the like, or '@every 90s'.",
        ),
        click.option("--every", type=duration, help="Repeatedly, at this interval."),
    ):
        command = decorate(command)
    return command


def read_spec(options: SpecOptions) -> _Spec | None:
    """Return the timetable, or None if no option was given. Raises Misuse for more than one."""
    import pulse

    named = [name for name in ("every", "cron", "at", "after") if options.get(name) is not None]
    if len(named) > 1:
        raise Misuse(f"Give only one of {', '.join(f'--{name}' for name in named)}.")
    if options["tz"] is not None and options["cron"] is None:
        raise Misuse("--tz goes with --cron: it is the zone of the expression.")
    if options["every"] is not None:
        return pulse.Every(options["every"])
    if options["cron"] is not None:
        return pulse.Cron(options["cron"], options["tz"])
    if options["at"] is not None:
        return pulse.At(options["at"])
    if options["after"] is not None:
        return pulse.After(options["after"])
    return None


def required_spec(options: SpecOptions) -> _Spec:
    """Return the timetable. Raises Misuse if no option was given."""
    spec = read_spec(options)
    if spec is None:
        raise Misuse(
            "Give a timetable: --every 5m, --cron '0 9 * * 1-5', --at 2030-01-31T09:00 or --after 2h."
        )
    return spec


# ---------------------------------------------------------------- create and update

_ENTRIES = {name: entry for entry, name in ENTRIES.items()}
CATCH_UPS = ("one", "skip", "all")
# In one question.
_MOST_WARNED = 3
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
    help="The attempts of its jobs; by the setting of the topic if not given.",
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
@click.option(
    "--replace", is_flag=True, help="Change the schedule of this name if it exists, as `update` does."
)
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
    if replace and name is None:
        raise Misuse("--replace needs --name: that of the schedule to change.")
    options: dict[str, Any] = {
        "priority": priority,
        "max_attempts": max_attempts,
        "start_within": start_within,
        "metadata": read_metadata(metadata),
        "catch_up": catch_up,
        "overlap": overlap,
        "reason": reason_here(),
    }
    with connected() as client:
        import pulse

        try:
            made = client.schedule(topic, args, spec, name=name, **options)
        except pulse.AlreadyExists:
            if not replace or name is None:
                raise
            made = _replace(client, name, topic, args, spec, options)
        fires = client.schedules.preview(made.spec) if output.is_for_people and made.kind == "cron" else []
    output.show_one(whole_schedule_shape(made), lambda: describe_schedule(made, fires))


def _replace(
    client: pulse.SyncPulse, name: str, topic: str, args: object, spec: _Spec, options: dict[str, Any]
) -> pulse.ScheduleInfo:
    """Change all entries of the schedule. Not a declaration: the operator owns them."""
    import pulse

    if isinstance(spec, pulse.Cron):
        spec = pulse.Cron(spec.expression, spec.tz)
    given = {
        **options,
        "start_within": options["start_within"] or timedelta(0),
        "metadata": options["metadata"] or {},
    }
    return client.schedules.update(name, topic=topic, args=args, spec=spec, **given)


@click.command(
    "update",
    cls=Command,
    examples="""
        pulse schedules update clean-up --every 30m
        pulse schedules update morning-report --cron '30 8 * * 1-5'
        pulse schedules update morning-report --tz Europe/Paris
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
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def update(
    schedule: str,
    yes: bool,
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
    """Change the given fields of a schedule, and keep the others. A new timetable starts now; its kind stays.

    If code declares the schedule, these fields stay as they are set here until `pulse schedules reset`.
    Asks first if a schedule that fires rarely would fire often; --yes skips it.
    """
    args = read_payload(payload, file, source, raw=raw)
    tz = when["tz"] if when["cron"] is None else None
    if tz is not None:
        when["tz"] = None  # it moves the expression that the schedule has
    changes: dict[str, Any] = {
        "spec": read_spec(when),
        "tz": tz,
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
        known = client.schedules.get(schedule)
        if "spec" in changes:
            confirm_harm(client, consequences.more_fires(known, changes["spec"]), yes=yes)
        changed = client.schedules.update(known, reason=reason_here(), **changes)
        _show_change(client, known, changed)


@click.command(
    "reset",
    cls=Command,
    short_help="Hand fields of a schedule back to the code.",
    examples="""
        pulse schedules reset nightly
        pulse schedules reset nightly cron tz
    """,
)
@click.argument("schedule")
@click.argument("entries", nargs=-1, type=click.Choice(list(_ENTRIES)), metavar="[ENTRY]...")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(schedule: str, entries: tuple[str, ...], yes: bool) -> None:
    """Return fields of a schedule to what the code that declares it says.

    Without entries, all fields that operators have set are returned. The entries are at, every, cron,
    tz, topic, payload, priority, max-attempts, metadata, catch-up, start-within and overlap. Asks first
    if a schedule that fires rarely would fire often; --yes skips it.
    """
    names = [_ENTRIES[entry] for entry in entries]
    with connected() as client:
        known = client.schedules.get(schedule)
        returned = names or [override.entry for override in known.overrides]
        if known.declares is not None and {"cron", "every"}.intersection(returned):
            confirm_harm(client, consequences.more_fires(known, known.declares.spec), yes=yes)
        changed = client.schedules.reset(known, *names, reason=reason_here())
        _show_change(client, known, changed)


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
    """Delete schedules. Their jobs are kept.

    A schedule that code declares is made again when the next worker of that code starts. Pause it instead.
    """
    what = f"the schedule {names[0]}" if len(names) == 1 else f"{len(names)} schedules"
    with connected() as client:
        if not yes:
            declared = [known for known in _found(client, names) if is_in_code(known)]
            again = " ".join(map(_made_again, declared[:_MOST_WARNED]))
            confirm(f"Delete {what}?{f' {again} Continue?' if again else ''}", yes=yes)

        def act(name: str) -> pulse.ScheduleInfo:
            known = client.schedules.get(name)
            client.schedules.delete(known, reason=reason_here())
            return known

        def sentence(known: pulse.ScheduleInfo) -> str:
            return f"Deleted {_called(known)}.{f' {_made_again(known)}' if is_in_code(known) else ''}"

        act_on_each(names, act, sentence=sentence, shape=schedule_shape)


def _found(client: pulse.SyncPulse, names: Sequence[str]) -> Iterator[pulse.ScheduleInfo]:
    import pulse

    for name in names:
        with contextlib.suppress(pulse.NotFound):  # the deletion reports it
            yield client.schedules.get(name)


def _made_again(schedule: pulse.ScheduleInfo) -> str:
    name = _called(schedule)
    return (
        f"Code declares {name}: the next worker that starts makes it again, without what operators have "
        f"set. To stop it for good: pulse schedules pause {name}"
    )


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


def _show_change(client: pulse.SyncPulse, before: pulse.ScheduleInfo, after: pulse.ScheduleInfo) -> None:
    output = output_here()
    fires = client.schedules.preview(after.spec) if output.is_for_people and after.kind == "cron" else []
    lines = chain(describe_changes(before, after), describe_schedule(after, fires))
    output.show_one(whole_schedule_shape(after), lambda: lines)


def _called(schedule: pulse.ScheduleInfo) -> str:
    return schedule.name or schedule.id


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
