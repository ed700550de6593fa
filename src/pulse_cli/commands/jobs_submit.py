"""The unique key of a job as options: --unique, --while, --on-conflict, --period, --longest.

`pulse submit`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Command
from pulse_cli.failures import Misuse
from pulse_cli.inputs import (
    WholeNumber,
    duration,
    metadata_option,
    moment,
    payload_options,
    read_metadata,
    read_payload,
)
from pulse_cli.output import output_here
from pulse_cli.terminal import hint
from pulse_cli.views.shapes import handle_shape

if TYPE_CHECKING:
    import pulse
    from pulse import JobHandle, SyncPulse

F = TypeVar("F", bound=Callable[..., Any])


class UniqueOptions(TypedDict):
    """The values of the options."""

    unique: str | None
    unique_while: pulse.UniqueWhile | None
    on_conflict: pulse.OnConflict | None
    period: timedelta | None
    longest: timedelta | None


def unique_options(command: F) -> F:
    """Add the options of a unique key."""
    for decorate in (
        click.option(
            "--longest",
            type=duration,
            help="The longest that a debounce puts off the job; ten periods if not given.",
        ),
        click.option("--period", type=duration, help="The period of --on-conflict debounce or throttle."),
        click.option(
            "--on-conflict",
            type=click.Choice(("skip", "replace", "debounce", "throttle")),
            help="If there is one: store nothing (skip, the default), give it this payload (replace), and "
            "start it a period after the last submit (debounce); store one in a period (throttle).",
        ),
        click.option(
            "--while",
            "unique_while",
            type=click.Choice(("waiting", "live")),
            help="Count jobs that have not started (waiting, the default) or have not finished (live).",
        ),
        click.option("--unique", metavar="KEY", help="At most one job of this key on the topic waits."),
    ):
        command = decorate(command)
    return command


def read_unique(options: UniqueOptions) -> pulse.Unique | None:
    """Return the unique key, or None if none was given. Raises Misuse for options that need one."""
    import pulse

    if options["unique"] is None:
        names = {"unique_while": "--while", "on_conflict": "--on-conflict"}
        for name in ("unique_while", "on_conflict", "period", "longest"):
            if options.get(name) is not None:
                raise Misuse(f"{names.get(name, f'--{name}')} goes with --unique KEY.")
        return None
    return pulse.Unique(
        options["unique"],
        while_=options["unique_while"] or "waiting",
        on_conflict=options["on_conflict"] or "skip",
        period=options["period"],
        longest=options["longest"],
    )


@click.command(
    cls=Command,
    examples="""
        pulse submit send-email --payload '{"to": "a@b.c"}'
        pulse submit send-email --file email.json --priority 5 --delay 10m
        jq -c .order order.json | pulse submit bill-order - --key order-4711
        pulse submit rebuild-index --wait && echo rebuilt
        id=$(pulse submit rebuild-index) && pulse jobs get "$id" --watch
        pulse submit send-reminder --start-within 1h
        pulse submit sync-shop --payload '{"shop": 7}' --unique shop-7 --on-conflict replace
        pulse submit load-test --count 1000
    """,
)
@click.argument("topic")
@payload_options
@click.option("--priority", type=int, default=0, show_default=True, help="Higher runs first.")
@click.option("--delay", type=duration, help="Do not start before this long from now.")
@click.option(
    "--at",
    "run_at",
    type=moment,
    metavar="TIME",
    help="Do not start before this time; in this machine's zone unless given.",
)
@click.option(
    "--start-within", type=duration, help="Cancel it if it has not started this long after it is due."
)
@click.option(
    "--max-attempts",
    type=WholeNumber(min=1),
    metavar="N",
    help="The maximum number of attempts; by the setting of the topic if not given.",
)
@click.option("--lane", help="What the limits of the topic count by, such as a customer.")
@click.option("--key", help="An idempotency key: repeated submits with the same key store one job.")
@unique_options
@metadata_option
@click.option("--count", type=WholeNumber(min=1), metavar="N", help="Submit this many identical jobs.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until it has finished and print its result; the exit code is 0 only if it completed.",
)
@click.option("--wait-timeout", type=duration, help="Stop waiting after this long. Implies --wait.")
def submit(
    topic: str,
    payload: str | None,
    file: str | None,
    source: str | None,
    raw: bool,
    priority: int,
    delay: timedelta | None,
    run_at: datetime | None,
    start_within: timedelta | None,
    max_attempts: int | None,
    lane: str | None,
    key: str | None,
    metadata: tuple[str, ...],
    count: int | None,
    wait: bool,
    wait_timeout: timedelta | None,
    **unique_by: Unpack[UniqueOptions],
) -> None:
    """Submit a job on TOPIC, and print its id.

    The payload is JSON, given with --payload, --file, or - for standard input. In a pipe, and in $(…),
    the output is the id alone: one line for each job.
    """
    if key is not None and count is not None:
        raise Misuse("--key and --count exclude each other: jobs with the same key are one job.")
    unique = read_unique(unique_by)
    if unique is not None and count is not None:
        raise Misuse("--unique and --count exclude each other: of jobs with the same key one waits.")
    if delay is not None and run_at is not None:
        raise Misuse("Give --delay or --at, not both.")
    args = read_payload(payload, file, source, raw=raw)
    entries = read_metadata(metadata)
    with connected() as client:
        if count is None:
            handles = [
                client.enqueue(
                    topic,
                    args,
                    priority=priority,
                    delay=delay,
                    run_at=run_at,
                    start_within=start_within,
                    max_attempts=max_attempts,
                    lane=lane,
                    key=key,
                    unique=unique,
                    metadata=entries,
                )
            ]
        else:
            handles = client.enqueue_many(
                topic,
                [args] * count,
                priority=priority,
                delay=delay,
                run_at=run_at,
                start_within=start_within,
                max_attempts=max_attempts,
                lane=lane,
                metadata=entries,
            )
        if wait or wait_timeout is not None:
            _wait(client, handles, wait_timeout, is_array=count is not None)
        else:
            _show(handles, is_array=count is not None)


def _show(handles: Sequence[JobHandle], *, is_array: bool) -> None:
    output = output_here()
    if output.form == "json":
        output.show_shape([handle_shape(h) for h in handles] if is_array else handle_shape(handles[0]))
    elif output.form == "plain" or not sys.stdout.isatty():
        click.echo("\n".join(handle.id for handle in handles))
        if output.is_for_people and (remark := _remark(handles[0])):
            hint(remark)
    else:
        click.echo(_sentence(handles, is_array=is_array))


def _sentence(handles: Sequence[JobHandle], *, is_array: bool) -> str:
    first, last = handles[0], handles[-1]
    if is_array:
        return f"Submitted {len(handles)} jobs on {first.topic}, {first.id} to {last.id}."
    return f"Submitted {first.id} on {first.topic}. {_remark(first)}".rstrip()


def _remark(handle: JobHandle) -> str:
    if handle.replaced:
        return "It already existed, with the same unique key, and has this payload and these options now."
    return "It already existed, with the same key." if handle.duplicate else ""


def _wait(
    client: SyncPulse, handles: Sequence[JobHandle], longest: timedelta | None, *, is_array: bool
) -> None:
    from pulse_cli.loops.wait import wait_for_jobs

    if output_here().is_for_people:
        click.echo(_sentence(handles, is_array=is_array))
    wait_for_jobs(client, handles, longest, output_here(), is_array=is_array)
