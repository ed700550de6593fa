"""`pulse dispatch`: pauses and resumes dispatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.connection import connected
from pulse_cli.declaring import Group
from pulse_cli.inputs import confirm_harm, reason_here, reason_option
from pulse_cli.output import output_here
from pulse_cli.terminal import QUIET, WARNING, Cell, Line, age, full, hint, now
from pulse_cli.views.shapes import dispatch_shape
from pulse_text import printable
from pulse_text.consequences import pause_everything

if TYPE_CHECKING:
    from pulse import DispatchStatus, SyncPulse, TopicInfo, TopicPage, TopicPause

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
def pause(topics: Sequence[str], reason: str, yes: bool) -> None:
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
def resume(topics: Sequence[str]) -> None:
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
        yield [Cell("Paused", WARNING), Cell(f": {printable.one_line(topic)}{_pause(pause, present)}")]
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
