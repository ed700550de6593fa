"""`pulse topics retention`: how long the finished jobs of a topic are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs.times import keep
from pulse_cli.views.output import output_here
from pulse_cli.views.policies import policy_view, policy_words
from pulse_cli.views.shapes_policies import policy_shape

if TYPE_CHECKING:
    from pulse import TopicPolicies, TopicPolicy

    Keep = timedelta | Literal["forever", "default"]

_LENGTHS = "a duration from a minute to 3650d, forever, or default for the server's setting"


@click.command(
    "retention",
    cls=Command,
    short_help="Show or set how long finished jobs are kept.",
    examples="""
        pulse topics retention
        pulse topics retention audit --completed forever
        pulse topics retention thumbnails --completed 1h --dead-lettered 7d
        pulse topics retention thumbnails --default
    """,
)
@click.argument("topic", required=False)
@click.option(
    "--completed", type=keep, metavar="LENGTH", help=f"How long COMPLETED jobs are kept: {_LENGTHS}."
)
@click.option("--canceled", type=keep, metavar="LENGTH", help="The same for CANCELED jobs.")
@click.option("--dead-lettered", type=keep, metavar="LENGTH", help="The same for DEAD_LETTERED jobs.")
@click.option("--default", "is_default", is_flag=True, help="Return all three to the server's settings.")
def retention(
    topic: str | None,
    completed: Keep | None,
    canceled: Keep | None,
    dead_lettered: Keep | None,
    is_default: bool,
) -> None:
    """Show or set how long the finished jobs of a topic are kept.

    Without a topic, lists the topics that have a policy of their own, and the server's settings for all
    others. A change counts at all servers within minutes. What it shortens is deleted then, for good.
    """
    given = [completed, canceled, dead_lettered]
    is_change = is_default or any(length is not None for length in given)
    if is_change and topic is None:
        raise click.UsageError("Name the topic: pulse topics retention TOPIC --completed 1d")
    if is_default:
        if any(length is not None for length in given):
            raise click.UsageError("--default returns all three to the server's settings: give it alone.")
        completed = canceled = dead_lettered = "default"
    with connected() as client:
        if topic is not None and is_change:
            client.set_topic_policy(
                topic, keep_completed=completed, keep_canceled=canceled, keep_dead_lettered=dead_lettered
            )
        found = client.topic_policies(names=[topic] if topic is not None else ())
    if topic is None:
        _show_all(found)
        return
    policy = next(iter(found), None) or _without_policy(topic)
    output_here().show_done(policy_words(policy, found.server), policy_shape(policy))


def _show_all(found: TopicPolicies) -> None:
    own = [policy for policy in found if not policy.keeps_by_default]
    output_here().show_list([found.server, *own], policy_view(found.server), "")


def _without_policy(topic: str) -> TopicPolicy:
    from pulse import TopicPolicy

    return TopicPolicy(topic, "default", "default", "default")
