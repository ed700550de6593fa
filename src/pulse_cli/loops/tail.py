"""Follows jobs as they change: a line for each change, and one for what could not be seen."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from pulse_cli.failures import INTERRUPTED, Failure
from pulse_cli.views.jobs import state
from pulse_cli.views.jobs_transitions import FIELDS, transition_lines
from pulse_cli.views.output import Output, plain
from pulse_cli.views.shapes import Shape, gap_shape, transition_shape
from pulse_cli.views.terminal import hint, print_lines, table_width
from pulse_text import printable
from pulse_text.moments import now

if TYPE_CHECKING:
    from pulse import SyncPulse, Transitions


def follow(
    client: SyncPulse, ids: Sequence[str], topics: Sequence[str], statuses: Collection[str], output: Output
) -> None:
    """Print what happens until Ctrl-C, which is how this ends, or until nobody reads it any more."""
    told = _told(ids, topics, statuses)
    try:
        # Close it by name: left to the collector it could end after the client, whose thread it needs.
        stream = client.watch(topics=topics, job_ids=ids)
        try:
            for number, news in enumerate(stream):
                if number == 0:
                    hint(f"Following {told}. Ctrl-C ends it.")
                    for job_id in ids:
                        _tell_present(client, job_id)
                _print(news, statuses, output)
        finally:
            stream.close()
    except KeyboardInterrupt:
        raise Failure("", INTERRUPTED) from None


def _print(news: Transitions, statuses: Collection[str], output: Output) -> None:
    if news.missed or news.interrupted:
        _tell_gap(news, output)
    changes = [change for change in news.transitions if not statuses or str(change.status) in statuses]
    if not changes:
        return
    if output.is_for_people:
        print_lines(transition_lines(changes, table_width()))
        return
    shapes = map(transition_shape, changes)
    if output.form == "json":
        lines = [_json(shape) for shape in shapes]
    else:
        lines = ["\t".join(plain(shape[name]) for name in FIELDS) for shape in shapes]
    click.echo("\n".join(lines))


def _tell_gap(news: Transitions, output: Output) -> None:
    if output.form == "json":
        click.echo(_json(gap_shape(news)))
        return
    if news.interrupted:
        hint("The connection was lost and is back: what happened meanwhile was not seen.")
    if news.missed:
        hint(f"{news.missed:,} more changes, of any jobs, came faster than they could be told.")


def _tell_present(client: SyncPulse, job_id: str) -> None:
    job = client.get_job(job_id)
    hint(f"{job.id} on {job.topic} is {job.status}: {state(job, now()) or 'finished'}")


def _told(ids: Sequence[str], topics: Sequence[str], statuses: Collection[str]) -> str:
    which = "all jobs" if not ids else "1 job" if len(ids) == 1 else f"{len(ids)} jobs"
    on = f" on {', '.join(topics)}" if topics else ""
    to = f", when they become {' or '.join(statuses)}" if statuses else ""
    return which + on + to


def _json(shape: Shape) -> str:
    return printable.in_json(json.dumps(shape, ensure_ascii=False))
