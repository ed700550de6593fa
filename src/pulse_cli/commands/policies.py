"""`pulse topics policy` and `pulse topics retention`: how jobs run, and how long finished ones are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs import policies as inputs
from pulse_cli.inputs.consequences import confirm_harm
from pulse_cli.inputs.shared_options import reason_here, reason_option
from pulse_cli.inputs.times import keep
from pulse_cli.views.output import output_here
from pulse_cli.views.policies import describe_run_policy, policy_view, policy_words, run_policy_view
from pulse_cli.views.shapes import policy_shape, run_policy_shape
from pulse_text.consequences import shorter_retention

if TYPE_CHECKING:
    from pulse import Backoff, TopicPolicies, TopicPolicy

    Keep = timedelta | Literal["forever", "default"]


@click.command(
    "policy",
    cls=Command,
    short_help="Show or set how jobs are retried and limited.",
    examples="""
        pulse topics policy
        pulse topics policy send-email
        pulse topics policy send-email --max-attempts 40 --backoff first=5s,factor=2,longest=1h
        pulse topics policy render --attempt-timeout 10m --max-crashes 2
        pulse topics policy send-email --max-attempts default
        pulse topics policy send-email --default
    """,
)
@click.argument("topic", required=False)
@click.option(
    "--max-attempts",
    type=inputs.attempts,
    metavar="N",
    help="The attempts of jobs that are submitted without their own number, from now on.",
)
@click.option(
    "--backoff",
    type=inputs.backoff,
    metavar="DELAYS",
    help="The delays between attempts, as first=2s,factor=3,longest=6h,jitter=0.2; all but first may be left "
    "out. Counts for the next failure of each job.",
)
@click.option(
    "--attempt-timeout",
    type=inputs.attempt_timeout,
    metavar="DURATION",
    help="How long one attempt may take, such as 2m.",
)
@click.option(
    "--max-crashes",
    type=inputs.attempts,
    metavar="N",
    help="A job is a dead letter once so many of its attempts have ended in a lost lease. A first attempt "
    "that is lost before its first heartbeat, within some 50 ms of its start, does not count.",
)
@click.option("--default", "is_default", is_flag=True, help="Hand all four back.")
@reason_option
def policy(
    topic: str | None,
    max_attempts: int | Literal["default"] | None,
    backoff: Backoff | Literal["default"] | None,
    attempt_timeout: timedelta | Literal["default"] | None,
    max_crashes: int | Literal["default"] | None,
    is_default: bool,
) -> None:
    """Show or set how the jobs of a topic run: attempts, the delays between them, time limit, crashes.

    A value set here overrides the value that a worker declares in code, which overrides the
    server's settings. Each of the four values is decided separately. Give `default` to remove a
    value. Without a topic, lists the topics that have a policy, and the server's settings for all
    other topics.
    """
    changes: dict[str, Any] = {
        "max_attempts": max_attempts,
        "backoff": backoff,
        "attempt_timeout": attempt_timeout,
        "max_crashes": max_crashes,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if (given or is_default) and topic is None:
        raise click.UsageError("Name the topic: pulse topics policy TOPIC --max-attempts 8")
    if is_default:
        if given:
            raise click.UsageError("--default hands all four back: give it alone.")
        given = dict.fromkeys(changes, inputs.DEFAULT)
    with connected() as client:
        if topic is not None and given:
            client.set_topic_policy(topic, reason=reason_here(), **given)
        found = client.topic_policies(names=[topic] if topic is not None else ())
    if topic is None:
        _show_runs(found)
        return
    shown = next(iter(found), None) or _without_policy(topic, found.server)
    output_here().show_one(run_policy_shape(shown), lambda: describe_run_policy(shown, found.server))


def _show_runs(found: TopicPolicies) -> None:
    own = [policy for policy in found if policy.run or policy.declared]
    output_here().show_list([found.server, *own], run_policy_view(), "")


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
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def retention(
    topic: str | None,
    completed: Keep | None,
    canceled: Keep | None,
    dead_lettered: Keep | None,
    is_default: bool,
    yes: bool,
) -> None:
    """Show or set how long the finished jobs of a topic are kept.

    Without a topic, lists the topics that have a policy, and the server's settings for all other
    topics. A change reaches all servers within minutes. A shorter time takes effect after the
    server's grace time, an hour by default: set the longer one again before to undo it. Older jobs
    are then deleted for good. It asks first, with their number; --yes skips it.
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
            keep: dict[str, Any] = {
                "keep_completed": completed,
                "keep_canceled": canceled,
                "keep_dead_lettered": dead_lettered,
            }
            confirm_harm(client, shorter_retention(topic, keep), yes=yes)
            client.set_topic_policy(topic, **keep, reason=reason_here())
        found = client.topic_policies(names=[topic] if topic is not None else ())
    if topic is None:
        _show_all(found)
        return
    policy = next(iter(found), None) or _without_policy(topic, found.server)
    output_here().show_done(policy_words(policy, found.server), policy_shape(policy))


def _show_all(found: TopicPolicies) -> None:
    own = [policy for policy in found if not policy.keeps_by_default]
    output_here().show_list([found.server, *own], policy_view(found.server), "")


def _without_policy(topic: str, server: TopicPolicy) -> TopicPolicy:
    from pulse import TopicPolicy

    return TopicPolicy(topic, "default", "default", "default", effective=server.effective)
