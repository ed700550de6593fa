"""`pulse topics` and `pulse lanes`: topics, their settings and limits. `pulse dispatch`: their pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from pulse.topic_settings import DEFAULT, ENTRIES, Entry, Flag
from pulse_cli import tuning
from pulse_cli.connection import connected
from pulse_cli.declaring import Group, GroupThatShows
from pulse_cli.inputs import WholeNumber, confirm_harm, duration, paging_options, reason_here, reason_option
from pulse_cli.jobs.views import describe_explanation, explanation_shape
from pulse_cli.output import collect, output_here
from pulse_cli.terminal import QUIET, WARNING, Cell, Line, age, full, hint, now, print_lines, table_width
from pulse_cli.topics.views import (
    dashed,
    describe_limits,
    describe_settings,
    dispatch_shape,
    lane_view,
    limits_view,
    settings_of_server,
    settings_shape,
    settings_view,
    topic_table,
    topic_view,
    used_limits_shape,
)
from pulse_text import consequences, printable
from pulse_text.consequences import pause_everything

if TYPE_CHECKING:
    from pulse import DispatchStatus, LaneInfo, SyncPulse, TopicInfo, TopicLimits, TopicPage, TopicPause

F = TypeVar("F", bound=Callable[..., Any])


def value_of(entry: Entry) -> Callable[[str], Any]:
    """Return the function that converts the value of an option to a value of the entry, or to "default"."""

    def convert(text: str) -> Any:
        if not text.strip():
            # Not `default`: a variable of a script that is empty by mistake must not reset the entry.
            raise click.BadParameter(f"it is empty: write a value such as {entry.example}, or default.")
        try:
            return entry.parse(text)
        except ValueError as problem:
            raise click.BadParameter(str(problem)) from None

    convert.__name__ = entry.kind.takes.lower()  # what help shows
    return convert


def entry_options(command: F) -> F:
    """Add an option for each entry. One that is not given is None."""
    for entry in reversed(list(ENTRIES.values())):
        command = _option(entry)(command)
    return command


def _option(entry: Entry) -> Callable[[F], F]:
    if isinstance(entry.kind, Flag):
        opposite = entry.option.replace("--", "--no-", 1)
        return click.option(f"{entry.option}/{opposite}", default=None, help=entry.help)
    return click.option(
        entry.option,
        type=value_of(entry),
        metavar=entry.kind.takes,
        help=f"{entry.help.removesuffix('.')}, such as {entry.example}.",
    )


class EntryName(click.Choice[str]):
    """The name of an entry, as its option has it, without the dashes in front."""

    def __init__(self) -> None:
        super().__init__([dashed(name) for name in ENTRIES])

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name that the SDK takes."""
        chosen = super().convert(dashed(value), param, ctx)
        return chosen.replace("-", "_")


_NO_TOPICS = (
    "No topic has unfinished or dead-lettered jobs, workers, or activity in the last hour. "
    "List all jobs: pulse jobs list. Submit one: pulse submit TOPIC --payload JSON"
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    short_help="Show topics: counts, ages, rates; set and limit them.",
    examples="""
        pulse topics
        pulse topics --search mail
        pulse topics explain send-email
        pulse topics show send-email
        pulse topics set send-email --running 5 --max-attempts 40
        pulse topics --all --output json | jq -r '.[] | select(.dead_lettered > 0).topic'
    """,
)
@click.option("--search", metavar="TEXT", help="Only topics whose name contains this.")
@partial(paging_options, limit=tuning.LARGEST_PAGE)
@click.pass_context
def topics(
    context: click.Context, search: str | None, limit: int, everything: bool, cursor: str | None
) -> None:
    """Show each topic: ready, waiting, running and dead-lettered jobs, their age, and rates.

    The rates are of the last full minute and the last hour. Completed jobs are counted in the rates
    only. FAIL counts failed attempts, retried or not. FOR JOBS, if there are any, counts jobs of workflows
    that wait for other jobs; WAIT does not.
    """
    if context.invoked_subcommand is not None:
        return
    output = output_here()
    with connected() as client:
        pages: list[TopicPage] = []

        def fetch(size: int, at: str | None) -> TopicPage:
            pages.append(client.list_topics(search=search, limit=size, cursor=at))
            return pages[-1]

        found, more = collect(fetch, limit, everything, cursor)
    last = pages[-1]
    if output.is_for_people and found:
        print_lines(topic_table(found, table_width(), None if search else last.sum))
    else:
        output.show_list(found, topic_view(), _NO_TOPICS if not search else f"No topic contains {search!r}.")
    if more is not None:
        hint(
            f"{len(found):,} of {last.total:,} topics are shown: narrow it with --search TEXT, add --all or "
            f"a larger --limit, or continue with --cursor {more}"
        )


@topics.command(
    "explain",
    examples="""
        pulse topics explain send-email
        pulse topics explain send-email --output json | jq -r .cause
    """,
)
@click.argument("topic")
def explain(topic: str) -> None:
    """Show why a topic starts no jobs: what stops all of them, or its next job."""
    with connected() as client:
        why = client.explain_topic(topic)
    output_here().show_one(explanation_shape(why), lambda: describe_explanation(topic, why))


# ---------------------------------------------------------------- settings


@topics.command(
    "show",
    short_help="Show the settings of a topic, and who set each.",
    examples="""
        pulse topics show
        pulse topics show send-email
        pulse topics show send-email -o json | jq .in_force
    """,
)
@click.argument("topic", required=False)
def show(topic: str | None) -> None:
    """Show the settings of a topic: limits, how its jobs run, and how long finished jobs are kept.

    For each setting: the value in force, who decided it, and what operators, the code of workers and the
    settings of the servers have. Without a topic, lists the topics that have settings of their own, and
    the settings of the server for all other topics.
    """
    with connected() as client:
        if topic is not None:
            _show_settings(client, topic)
            return
        found = client.all_topic_settings()
    output_here().show_list([settings_of_server(found), *found], settings_view(), "")


@topics.command(
    "set",
    short_help="Set limits, retries, time limit and retention of a topic.",
    examples="""
        pulse topics set sync-crm --running 5 --rate 100/min
        pulse topics set sync-crm --per-lane 1 --lane-rate 10/s
        pulse topics set render --running 8 --pool gpu --attempt-timeout 10m
        pulse topics set send-email --max-attempts 40 --backoff first=5s,factor=2,longest=1h
        pulse topics set audit --keep-completed forever
        pulse topics set mails --running default
    """,
)
@click.argument("topic")
@entry_options
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def set_topic(topic: str, yes: bool, **entries: Any) -> None:
    """Set settings of TOPIC, for all servers and workers.

    A value set here wins over the value that workers declare in code, which wins over the settings of
    the servers. Options that are not given do not change. The value `default` hands a setting back; for
    turns and ordered, use `pulse topics reset`.

    Limits are in force at once. If a transaction has running jobs of TOPIC locked, as after ctx.complete,
    they come into force once it has ended. The output then names it. Attempts count for jobs that are
    submitted from now on, and the backoff for the next failure of each job. A first attempt that is lost
    within some 50 ms of its start, before its first heartbeat, does not count as a crash.

    A shorter retention takes effect after the server's grace time, an hour by default: set the longer one
    again before to undo it. Older jobs are then deleted for good.

    Asks first if more jobs run than the new limits let run, in all topics of the pool, and if finished
    jobs would be deleted; --yes skips it.
    """
    changes = {name: value for name, value in entries.items() if value is not None}
    if not changes:
        raise click.UsageError(f"Give a setting: pulse topics set {topic} --running 5")
    with connected() as client:
        _change(client, topic, changes, yes=yes)


@topics.command(
    "reset",
    short_help="Hand settings of a topic back to the code and the servers.",
    examples="""
        pulse topics reset sync-crm
        pulse topics reset sync-crm running rate
    """,
)
@click.argument("topic")
@click.argument("entries", nargs=-1, type=EntryName(), metavar="[ENTRY]...")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(topic: str, entries: tuple[str, ...], yes: bool) -> None:
    """Hand settings of TOPIC back: the value that workers declare in code decides, or else the servers.

    An ENTRY is the name of an option of `pulse topics set`, such as max-attempts. Without entries, all
    are handed back. Asks first if more jobs run than the workers' limits let run, and if finished jobs
    would be deleted; --yes skips it.
    """
    with connected() as client:
        _change(client, topic, dict.fromkeys(entries or ENTRIES, DEFAULT), yes=yes)


def _change(client: SyncPulse, topic: str, changes: dict[str, Any], *, yes: bool) -> None:
    confirm_harm(client, consequences.tighter_limits(topic, changes), yes=yes)
    confirm_harm(client, consequences.shorter_retention(topic, changes), yes=yes)
    settings = client.set_topic(topic, reason=reason_here(), **changes)
    _show_settings(client, topic, settings.pending)


def _show_settings(client: SyncPulse, topic: str, pending: str = "") -> None:
    """`pending` was the answer to a change. The server that lists the settings may not know of it yet."""
    found = client.all_topic_settings(names=[topic])
    own = found.of(topic)
    known = replace(own, pending=own.pending or pending)
    output_here().show_one(settings_shape(known), lambda: describe_settings(known, found.server))


# ---------------------------------------------------------------- limits, holds and pauses


@topics.command(
    "limits",
    short_help="Show what limits topics, and how much is in use.",
    examples="""
        pulse topics limits
        pulse topics limits sync-crm
        pulse topics limits sync-crm -o json
    """,
)
@click.argument("topic", required=False)
def limits(topic: str | None) -> None:
    """Show the limits in force, how many jobs run and have started, and when the next job starts.

    With TOPIC, also the topics that share its pool, and its lanes with the most running jobs.
    """
    with connected() as client:
        found = client.limits(names=[topic] if topic is not None else ())
        if topic is not None:
            _show_limits(client, topic, found)
            return
    output_here().show_list(
        found, limits_view(), "No topic has limits. Set one: pulse topics set TOPIC --running 5"
    )


@topics.command(
    "hold",
    short_help="Start no job of a topic for a while.",
    examples="pulse topics hold sync-crm --for 2m",
)
@click.argument("topic")
@click.option("--for", "span", type=duration, required=True, help="For how long.")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def hold(topic: str, span: timedelta, yes: bool) -> None:
    """Start no job of TOPIC and its pool for a while, at any server. Running jobs continue.

    The topic needs limits; `pulse topics pause` pauses any topic. The longest of several holds counts.
    Asks first if jobs run; --yes skips it.
    """
    with connected() as client:
        confirm_harm(client, consequences.hold(topic, span), yes=yes)
        client.hold(topic, span, reason=reason_here())
        _show_limits(client, topic, client.limits(names=[topic]))


@topics.command("unhold", short_help="End a hold.", examples="pulse topics unhold sync-crm")
@click.argument("topic")
@reason_option
def unhold(topic: str) -> None:
    """End the hold of TOPIC and its pool: its jobs start again."""
    with connected() as client:
        client.hold(topic, timedelta(0), reason=reason_here())
        _show_limits(client, topic, client.limits(names=[topic]))


@topics.command(
    "pause",
    short_help="Start no job of topics until resumed.",
    examples="pulse topics pause send-email --reason 'mail server is down'",
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--reason", default="", help="The reason, shown in the status and kept in the audit.")
@click.pass_context
def pause(context: click.Context, topics: tuple[str, ...], reason: str) -> None:
    """Start no job of each TOPIC until it is resumed. The same as `pulse dispatch pause --topic`.

    Applies to all servers and survives restarts. Running jobs finish.
    """
    context.invoke(pause_dispatch, topics=topics, reason=reason, yes=True)


@topics.command("resume", short_help="Start jobs again.", examples="pulse topics resume send-email")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@reason_option
@click.pass_context
def resume(context: click.Context, topics: tuple[str, ...]) -> None:
    """Start jobs of each TOPIC again. The same as `pulse dispatch resume --topic`."""
    context.invoke(resume_dispatch, topics=topics)


def _show_limits(client: SyncPulse, topic: str, found: list[TopicLimits]) -> None:
    if not found:
        from pulse import TopicLimits

        nothing = TopicLimits(topic, {}, 0, None, None)
        output_here().show_done(
            f"{topic} has no limits. Set one: pulse topics set {topic} --running 5",
            used_limits_shape(nothing, [], []),
        )
        return
    (known,) = found
    pool = known.in_force.get("pool")
    sharing = [each for each in client.limits() if each.in_force.get("pool") == pool] if pool else []
    lanes: list[LaneInfo] = []
    if "turns" in known.in_force:  # every limit of lanes implies it
        lanes = client.lanes(topic, by="share", limit=tuning.LANES_SHOWN)
    output_here().show_one(
        used_limits_shape(known, sharing, lanes), lambda: describe_limits(known, sharing, lanes)
    )


# ---------------------------------------------------------------- lanes


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
        f"{topic} has no lanes. Set a limit of each: pulse topics set {topic} --per-lane 1",
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
@click.option("--limit", type=value_of(ENTRIES["per_lane"]), metavar="N", help="Jobs that run at once.")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def set_lane(
    topic: str, lane: str, weight: int | None, limit: int | Literal["default"] | None, yes: bool
) -> None:
    """Set the weight and the limit of one LANE of TOPIC. A missing option is reset.

    Asks first if more of its jobs run than the limit lets run; --yes skips it.
    """
    own = None if limit == DEFAULT else limit
    with connected() as client:
        confirm_harm(client, consequences.lower_lane_limit(topic, lane, own), yes=yes)
        client.set_lane(topic, lane, weight=weight, limit=own, reason=reason_here())
    shape = {"topic": topic, "lane": lane, "weight": weight or 1, "limit": own}
    words = f"weight {weight or 1}, {'the limit of all lanes' if own is None else f'at most {own} at once'}"
    output_here().show_done(f"Set {lane} of {topic}: {words}.", shape)


# ---------------------------------------------------------------- dispatch

_topic_option = click.option(
    "--topic", "topics", multiple=True, help="Only this topic, instead of everything; repeatable."
)


@click.group(
    cls=Group,
    examples="""
        pulse dispatch pause --reason 'database maintenance'
        pulse dispatch status
        pulse dispatch resume
    """,
)
def dispatch() -> None:
    """Pause and resume dispatch. Running jobs finish; ready jobs wait."""


@dispatch.command(
    "pause",
    examples="""
        pulse dispatch pause --reason 'database maintenance'
        pulse dispatch pause --yes
        pulse dispatch pause --topic send-email --topic send-sms --reason 'mail server is down'
    """,
)
@_topic_option
@click.option("--reason", default="", help="The reason, shown in the status and kept in the audit.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def pause_dispatch(topics: Sequence[str], reason: str, yes: bool) -> None:
    """Dispatch no more jobs until resumed. Applies to all servers and survives restarts.

    Without --topic it asks first, with the number of jobs that wait; --yes skips it.
    """
    with connected() as client:
        if not topics:
            confirm_harm(client, pause_everything(), yes=yes)
        for topic in topics or (None,):
            client.pause(reason=reason, topic=topic)
        status = client.dispatch_status()
        paused = _paused(client, status)
    again = "".join(["pulse dispatch resume", *(f" --topic {topic}" for topic in topics)])
    output_here().show_done(
        f"Paused {_words(topics)}. Resume with: {again}", dispatch_shape(status, paused, paused.sum)
    )
    for one in paused.topics:
        if one.topic in topics and not (one.workers or one.ready or one.waiting or one.running):
            name = printable.one_line(one.topic)
            hint(f"{name} has no worker and no jobs. Is it spelled right? See: pulse topics")


@dispatch.command(
    "resume",
    examples="""
        pulse dispatch resume
        pulse dispatch resume --topic send-email
    """,
)
@_topic_option
@reason_option
def resume_dispatch(topics: Sequence[str]) -> None:
    """Dispatch jobs again. Topics that are paused by name stay paused, unless named here."""
    with connected() as client:
        for topic in topics or (None,):
            client.resume(topic, reason=reason_here())
        status = client.dispatch_status()
        paused = _paused(client, status)
    sentence = f"Resumed {_words(topics)}."
    if status.paused:
        sentence += " But everything is still paused. Resume with: pulse dispatch resume"
    elif status.topics:
        sentence += f" Still paused by name: {', '.join(sorted(status.topics))}."
    output_here().show_done(sentence, dispatch_shape(status, paused, paused.sum))


@dispatch.command("status", examples="pulse dispatch status")
def status() -> None:
    """Show each pause, its time and reason, and how many jobs wait for it."""
    with connected() as client:
        found = client.dispatch_status()
        topics = _paused(client, found)
    output_here().show_one(
        dispatch_shape(found, topics, topics.sum), lambda: describe_dispatch(found, topics)
    )


def _words(topics: Sequence[str]) -> str:
    if not topics:
        return "everything"
    return f"the topic{'' if len(topics) == 1 else 's'} {', '.join(map(printable.one_line, topics))}"


def _paused(client: SyncPulse, status: DispatchStatus) -> TopicPage:
    """Return the topics that are paused by name, and the sum of all topics."""
    return client.list_topics(names=sorted(status.topics)[: tuning.LARGEST_PAGE], limit=tuning.LARGEST_PAGE)


def describe_dispatch(status: DispatchStatus, topics: TopicPage) -> Iterator[Line]:
    """Yield each pause with its time, its reason and the jobs that wait."""
    present = now()
    if not status.paused and not status.topics:
        yield [Cell("Running", "green"), Cell(": nothing is paused.")]
    if status.paused:
        yield [Cell("Paused", WARNING), Cell(f": everything{_pause(status, present)}")]
        yield _waiting([topics.sum], present)
    for topic, pause in sorted(status.topics.items()):
        yield [
            Cell("Paused", WARNING),
            Cell(f": {printable.one_line(topic)}{_pause(pause, present)}"),
        ]
        yield _waiting([one for one in topics.topics if one.topic == topic], present)
    if status.topics_left_out:
        yield [Cell("Paused", WARNING), Cell(f": {status.topics_left_out:,} further topics.")]


def _waiting(topics: Sequence[TopicInfo], present: datetime) -> Line:
    ready = sum(topic.ready for topic in topics)
    oldest = min((topic.oldest_ready_at for topic in topics if topic.oldest_ready_at), default=None)
    if not ready or oldest is None:
        return [Cell("  No ready jobs wait.", QUIET)]
    jobs = "1 ready job waits" if ready == 1 else f"{ready:,} ready jobs wait"
    return [Cell(f"  {jobs}, the oldest for {age(oldest, present)}.")]


def _pause(pause: DispatchStatus | TopicPause, present: datetime) -> str:
    """Return since when, by which user, and why."""
    since = "" if pause.paused_at is None else f" since {full(pause.paused_at, present)}"
    by = f" by {printable.one_line(pause.paused_by)}" if pause.paused_by else ""
    return (
        since
        + by
        + (f", because: {printable.one_line(pause.reason)}" if pause.reason else ", no reason given")
    )
