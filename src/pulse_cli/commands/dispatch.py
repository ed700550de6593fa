"""`pulse dispatch`: the switch that holds jobs back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pulse_cli import printable
from pulse_cli.connecting import connected
from pulse_cli.declaring import Group
from pulse_cli.moments import full, now
from pulse_cli.output import Cell, Line, output_here
from pulse_cli.shapes import dispatch_shape

if TYPE_CHECKING:
    from pulse import DispatchStatus

_topic_option = click.option("--topic", help="Only this topic, instead of everything.")


@click.group(
    cls=Group,
    examples="""
        pulse dispatch pause --reason 'database maintenance'
        pulse dispatch status
        pulse dispatch resume
    """,
)
def dispatch() -> None:
    """Stop handing out jobs, and start again. Jobs that run finish; new ones wait."""


@dispatch.command(
    "pause",
    examples="""
        pulse dispatch pause --reason 'database maintenance'
        pulse dispatch pause --topic send-email --reason 'mail server is down'
    """,
)
@_topic_option
@click.option("--reason", default="", help="Why, for whoever looks next.")
def pause(topic: str | None, reason: str) -> None:
    """Hand out no more jobs, until resumed. It holds on every server, and through restarts."""
    with connected() as client:
        client.pause(reason, topic)
        status = client.dispatch_status()
    what = f"the topic {topic}" if topic else "everything"
    again = "pulse dispatch resume" + (f" --topic {topic}" if topic else "")
    output_here().show_done(f"Paused {what}. Go on with: {again}", dispatch_shape(status))


@dispatch.command(
    "resume",
    examples="""
        pulse dispatch resume
        pulse dispatch resume --topic send-email
    """,
)
@_topic_option
def resume(topic: str | None) -> None:
    """Hand out jobs again. Topics that are paused by name stay so, unless named here."""
    with connected() as client:
        client.resume(topic)
        status = client.dispatch_status()
    sentence = f"Resumed {f'the topic {topic}' if topic else 'everything'}."
    if status.paused:
        sentence += " But everything is paused: pulse dispatch resume"
    elif status.topics:
        sentence += f" Still paused by name: {', '.join(sorted(status.topics))}."
    output_here().show_done(sentence, dispatch_shape(status))


@dispatch.command("status", examples="pulse dispatch status")
def status() -> None:
    """Tell what is paused, since when and why."""
    with connected() as client:
        found = client.dispatch_status()
    output_here().show_one(dispatch_shape(found), lambda: _describe(found))


def _describe(status: DispatchStatus) -> Iterator[Line]:
    present = now()
    if not status.paused and not status.topics:
        yield [Cell("Running", "green"), Cell(": nothing is paused.")]
    if status.paused:
        since = "" if status.paused_at is None else f" since {full(status.paused_at, present)}"
        yield [Cell("Paused", "red"), Cell(f": everything{since}{_because(status.reason)}")]
    for topic, pause in sorted(status.topics.items()):
        since = "" if pause.paused_at is None else f" since {full(pause.paused_at, present)}"
        yield [Cell("Paused", "red"), Cell(f": {printable.one_line(topic)}{since}{_because(pause.reason)}")]


def _because(reason: str) -> str:
    return f", because: {printable.one_line(reason)}" if reason else ", no reason given"
