"""Follows jobs: a line for each transition, and one for each gap."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from pulse_cli.failures import INTERRUPTED, Failure
from pulse_cli.output import Output, Shape, plain
from pulse_cli.terminal import hint, now, print_lines, table_width
from pulse_cli.views.jobs import TRANSITION_FIELDS, state, transition_lines
from pulse_cli.views.shapes import gap_shape, transition_shape
from pulse_text import printable

if TYPE_CHECKING:
    from pulse import SyncPulse, Transitions


def follow(
    client: SyncPulse, ids: Sequence[str], topics: Sequence[str], statuses: Collection[str], output: Output
) -> None:
    """Print transitions until Ctrl-C, or until the reader of the output is gone."""
    which = _words(ids, topics, statuses)
    try:
        # Close it here: the garbage collector could close it after the client whose thread it needs.
        stream = client.watch(topics=topics, job_ids=ids)
        try:
            for number, news in enumerate(stream):
                if number == 0:
                    hint(f"Following {which}. Ctrl-C ends it.")
                    for job_id in ids:
                        _hint_status(client, job_id)
                _print(news, statuses, output)
        finally:
            stream.close()
    except KeyboardInterrupt:
        raise Failure("", INTERRUPTED) from None


def _print(news: Transitions, statuses: Collection[str], output: Output) -> None:
    if news.missed or news.interrupted:
        _print_gap(news, output)
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
        lines = ["\t".join(plain(shape[name]) for name in TRANSITION_FIELDS) for shape in shapes]
    click.echo("\n".join(lines))


def _print_gap(news: Transitions, output: Output) -> None:
    if output.form == "json":
        click.echo(_json(gap_shape(news)))
        return
    if news.interrupted:
        hint("The connection was lost and is back. Transitions in between were missed.")
    if news.missed:
        hint(f"{news.missed:,} more transitions, of any jobs, were dropped: they came too fast.")


def _hint_status(client: SyncPulse, job_id: str) -> None:
    job = client.get_job(job_id)
    hint(f"{job.id} on {job.topic} is {job.status}: {state(job, now()) or 'finished'}")


def _words(ids: Sequence[str], topics: Sequence[str], statuses: Collection[str]) -> str:
    which = "all jobs" if not ids else "1 job" if len(ids) == 1 else f"{len(ids)} jobs"
    on = f" on {', '.join(topics)}" if topics else ""
    to = f", when they become {' or '.join(statuses)}" if statuses else ""
    return which + on + to


def _json(shape: Shape) -> str:
    return printable.in_json(json.dumps(shape, ensure_ascii=False))
