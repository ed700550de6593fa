"""`pulse submit`, and `pulse jobs`: list, find, get, explain, tail and export; the rest is in actions.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click

from pulse_cli import tuning
from pulse_cli.connection import connected
from pulse_cli.declaring import Command, Group
from pulse_cli.failures import Misuse
from pulse_cli.inputs import (
    WholeNumber,
    complete_status,
    duration,
    duration_from,
    job_id,
    job_ids,
    metadata_option,
    moment,
    paging_options,
    past_moment,
    payload_options,
    read_metadata,
    read_payload,
    status,
)
from pulse_cli.jobs.actions import cancel, delete, prioritize, retry, signal
from pulse_cli.jobs.bulk import Which, filter_options, job_filter
from pulse_cli.jobs.views import (
    describe_explanation,
    describe_job,
    explanation_shape,
    handle_shape,
    job_shape_with_steps,
    job_view,
)
from pulse_cli.output import collect, hint_at_more, output_here
from pulse_cli.terminal import hint, local
from pulse_text.jobs import STATUSES

if TYPE_CHECKING:
    import pulse
    from pulse import Explanation, JobHandle, JobInfo, Page, SyncPulse

F = TypeVar("F", bound=Callable[..., Any])


# ---------------------------------------------------------------- unique keys


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
    from pulse_cli.jobs.loops import wait_for_jobs

    if output_here().is_for_people:
        click.echo(_sentence(handles, is_array=is_array))
    wait_for_jobs(client, handles, longest, output_here(), is_array=is_array)


# ---------------------------------------------------------------- pulse jobs export


@click.command(
    "export",
    cls=Command,
    examples="""
        pulse jobs export --before 2030-02-01 --file january.jsonl
        pulse jobs export --since 2030-01-01 --before 2030-02-01 | gzip > january.jsonl.gz
        pulse jobs export --before 1d --topic audit --status COMPLETED --file audit.jsonl
        pulse jobs export --before 1d | jq -r 'select(.attempts > 1).id'
    """,
)
@click.option(
    "--before",
    type=past_moment,
    metavar="TIME",
    help="Only jobs that finished before this time: 1d for a day ago, or 2030-01-31T09:00. "
    "Up to a few seconds ago if not given.",
)
@click.option(
    "--since", type=past_moment, metavar="TIME", help="Only jobs that finished at this time or later."
)
@click.option("--topic", "topics", multiple=True, help="Only jobs on this topic; repeatable.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=status,
    shell_complete=complete_status,
    help="Only jobs in this status; repeatable: COMPLETED, DEAD_LETTERED, CANCELED.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which must not exist yet; standard output if not given.",
)
@click.option(
    "--after",
    "cursor",
    metavar="CURSOR",
    help="Continue an export that ended early, with the cursor that it printed and the same options. "
    "Appends to --file.",
)
def export(
    before: datetime | None,
    since: datetime | None,
    topics: tuple[str, ...],
    statuses: tuple[str, ...],
    path: Path | None,
    cursor: str | None,
) -> None:
    """Export finished jobs as JSON Lines, with their payloads, attempts and steps.

    One object per line, as in `pulse jobs get -o json`, in the order of submission. A payload that is not
    JSON is in payload_base64. Each job is exported once at the most, and none that is there throughout is
    left out.
    An export that ends early prints the cursor to continue with.
    """
    from pulse_cli.jobs.loops import Export

    with connected() as client, Export(path, is_continued=cursor is not None) as export:
        export.write(
            client.export_jobs(
                before=before,
                since=since,
                topics=topics or None,
                statuses=statuses or None,
                cursor=cursor,
            )
        )


# ---------------------------------------------------------------- pulse jobs


@click.group(
    cls=Group,
    examples="""
        pulse jobs list --topic send-email --status RUNNING
        pulse jobs get 0199c0de-0000-7000-8000-000000000001
        pulse jobs tail --topic send-email
        pulse jobs retry --topic send-email --status DEAD_LETTERED
    """,
)
def jobs() -> None:
    """List, find, follow, cancel, retry, prioritize, delete and export jobs.

    A job may be given by a prefix of its id that no other job shares.
    """


@jobs.command(
    "list",
    examples="""
        pulse jobs list
        pulse jobs list --status DEAD_LETTERED --topic send-email
        pulse jobs list --status DEAD_LETTERED --since 2h --error timeout
        pulse jobs list --schedule morning-report
        pulse jobs list --metadata tenant=acme --status RUNNING
        pulse jobs list --status RUNNING --watch
        pulse jobs list --all --output json | jq -r '.[] | select(.attempts > 3).id'
        pulse jobs list --status DEAD_LETTERED --output plain | cut -f1
    """,
)
@filter_options
@paging_options
@click.option("--watch", is_flag=True, help="Refresh the list until Ctrl-C.")
@click.option(
    "--interval",
    type=duration_from(tuning.WATCH_SHORTEST),
    default=tuning.WATCH_INTERVAL,
    help="The interval of --watch; 2s if not given.",
)
def list_jobs(
    which: Which,
    limit: int,
    everything: bool,
    cursor: str | None,
    watch: bool,
    interval: timedelta,
) -> None:
    """List jobs, newest first."""
    from pulse_cli.jobs.loops import explained, watch_list

    output = output_here()
    # A column that the filter fixes is dropped, to leave more space for the state.
    same = [
        *(["TOPIC"] if len(which.topics) == 1 else []),
        *(["STATUS"] if len(which.statuses) == 1 else []),
    ]
    with connected() as client:
        wanted = job_filter(client, which)

        why: dict[str, Explanation] = {}
        pages: list[Page] = []

        def fetch_page(size: int, at: str | None) -> Page:
            pages.append(client.list_jobs(limit=size, cursor=at, **wanted))
            return pages[-1]

        def fetch() -> tuple[list[JobInfo], str | None]:
            pages.clear()
            found = collect(
                fetch_page, limit, everything, cursor, is_enough=lambda: bool(pages[-1].looked_back_to)
            )
            why.clear()
            if output.is_for_people:
                why.update(explained(client, found[0], *([] if watch else [hint])))
            return found

        if watch:
            watch_list(
                lambda: fetch()[0], lambda: job_view(why).without(*same), _nothing(which), output, interval
            )
            return
        found, more = fetch()
    looked_back_to = None if everything else pages[-1].looked_back_to
    if looked_back_to is None:
        output.show_list(found, job_view(why).without(*same), _nothing(which))
        hint_at_more(more)
        return
    # Not "there are none": older jobs were not read.
    output.show_list(found, job_view(why).without(*same), "")
    hint(
        f"{len(found)} found among the newest jobs, back to {local(looked_back_to)}: a list by topic, error "
        "or metadata reads 100,000 jobs. Narrow it with --status, --since or --before, add --all, or "
        f"continue with --cursor {more}"
    )


@jobs.command(
    "find",
    examples="""
        pulse jobs find 7f3a
        pulse jobs find tenant-42
        pulse jobs find args.order_id=42 --topic bill-order
        pulse jobs find worker-7 --status RUNNING
    """,
)
@click.argument("words", metavar="TEXT...", nargs=-1, required=True)
@filter_options
@click.option(
    "--limit", type=WholeNumber(min=1), default=50, show_default=True, help="At most this many jobs."
)
@click.option("--cursor", help="Continue with older jobs, by the cursor that the last search printed.")
def find(words: tuple[str, ...], which: Which, limit: int, cursor: str | None) -> None:
    """Find jobs by any part of their id, topic, worker, lane or keys, or by a field of the payload.

    Each word has to match. A search compares the newest 10,000 jobs, or the newest 10,000 that match the
    options, of a topic among 100,000 jobs, and prints how far it came.
    """
    from pulse_cli.jobs.loops import explained

    output = output_here()
    with connected() as client:
        wanted = job_filter(client, which)
        found = client.search_jobs(" ".join(words), limit=limit, cursor=cursor, **wanted)
        why = explained(client, found, hint) if output.is_for_people else {}
    output.show_list(list(found), job_view(why), "No job matches.")
    if found.next_cursor is None:
        return
    if len(found) >= limit:
        hint(f"There are more: add a larger --limit, or continue with --cursor {found.next_cursor}")
    elif found.compared_to is not None:
        back_to = f"{found.compared_to:%Y-%m-%d %H:%M:%S} UTC"
        hint(
            f"Compared the newest {found.compared:,} jobs, back to {back_to}. "
            f"Older ones: add --cursor {found.next_cursor}"
        )


@jobs.command(
    "get",
    examples="""
        pulse jobs get 0199c0de-0000-7000-8000-000000000001
        pulse jobs get 0199c0de-0000-70
        pulse jobs get 0199c0de-0000-70 --watch
        pulse jobs get 0199c0de-0000-7000-8000-000000000001 --output json | jq .payload
    """,
)
@click.argument("job", metavar="ID")
@click.option("--watch", is_flag=True, help="Show its progress and changes until it has finished.")
def get(job: str, watch: bool) -> None:
    """Show a job: its state, progress, attempts, steps and payload."""
    from pulse_cli.jobs.loops import job_details, watch_job

    with connected() as client:
        if watch:
            watch_job(client, job_id(client, job), output_here())
            return
        details = job_details(client, job_id(client, job))
    shape = job_shape_with_steps(details.job, details.steps)
    output_here().show_one(shape, lambda: describe_job(*details))


@jobs.command(
    "explain",
    examples="""
        pulse jobs explain 0199c0de-0000-7000-8000-000000000001
        pulse jobs explain 0199c0de-0000-70 --output json | jq -r .cause
    """,
)
@click.argument("job", metavar="ID")
def explain(job: str) -> None:
    """Show why a job does not run, what must happen, and about when."""
    with connected() as client:
        why = client.explain(job_id(client, job))
    output_here().show_one(explanation_shape(why), lambda: describe_explanation(why.job_id or job, why))


@jobs.command(
    "tail",
    examples="""
        pulse jobs tail
        pulse jobs tail --topic send-email --topic send-sms
        pulse jobs tail --status DEAD_LETTERED --status RETRYING
        pulse jobs tail 0199c0de-0000-7000-8000-000000000001
        pulse jobs tail --output json | jq -r 'select(.error).error'
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--topic", "topics", multiple=True, help="Only jobs on this topic; repeatable.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=status,
    shell_complete=complete_status,
    help=f"Only transitions to this status; repeatable: {', '.join(STATUSES)}.",
)
def tail(ids: tuple[str, ...], topics: tuple[str, ...], statuses: tuple[str, ...]) -> None:
    """Follow jobs, one line per transition, until Ctrl-C.

    Follows all jobs, the jobs of some topics, or the given jobs. Transitions are dropped if they
    come too fast or while no server is available; their number is printed.
    """
    from pulse_cli.jobs.loops import follow

    with connected() as client:
        follow(client, job_ids(client, ids), topics, statuses, output_here())


for _action in (cancel, retry, prioritize, delete, signal, export):
    jobs.add_command(_action)


def _nothing(which: Which) -> str:
    if which.is_any:
        return "There are no jobs yet. Submit one with: pulse submit TOPIC --payload JSON"
    return f"There are no {which.words()}. `pulse jobs list` shows all."
