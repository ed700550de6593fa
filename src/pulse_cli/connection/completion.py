"""Completion of names that only the server knows: topics, lanes, schedules and workers."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import click
from click.types import StringParamType

from pulse_cli import tuning
from pulse_cli.connection.connecting import client_for, settings_here
from pulse_cli.inputs.shared_options import given

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pulse import SyncPulse

Names: TypeAlias = "Callable[[SyncPulse, click.Context, str], Iterable[str]]"


class ServerName(StringParamType):
    """A text that a shell completes with names of the server."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin so. None if the server does not answer at once, or needs a password."""
        from click.shell_completion import CompletionItem

        found: Iterable[str] = ()
        # Silent: the shell would print an error into the line that is being typed.
        with (
            contextlib.suppress(Exception),
            contextlib.redirect_stderr(io.StringIO()),
            ctx.scope(cleanup=False),
        ):
            given(ctx)["timeout"] = tuning.COMPLETION_TIMEOUT
            settings = settings_here()
            if settings["user"] is None or settings["password"] is not None:
                with client_for(settings) as client:
                    found = {*self._names(client, ctx, incomplete)}
        return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


def completed(param: click.Parameter) -> None:
    """Let a shell complete the parameter if its name, or its metavar, is that of a thing of the server."""
    kind = "schedule" if (param.metavar or "").startswith("SCHEDULE") else param.name
    if param.type is click.STRING and kind in _KINDS:
        param.type = ServerName(_KINDS[kind])


def _topics(client: SyncPulse, _: click.Context, typed: str) -> Iterable[str]:
    page = client.list_topics(search=typed or None, limit=tuning.LARGEST_PAGE)
    return (topic.topic for topic in page)


def _lanes(client: SyncPulse, ctx: click.Context, _: str) -> Iterable[str]:
    topic = ctx.params.get("topic") or ctx.params.get("topics")
    if isinstance(topic, tuple):
        topic = topic[0] if len(topic) == 1 else None
    return (
        (lane.lane for lane in client.lanes(topic, limit=tuning.LARGEST_PAGE) if lane.lane) if topic else ()
    )


def _schedules(client: SyncPulse, *_: object) -> Iterable[str]:
    return (schedule.name or schedule.id for schedule in client.schedules.list(limit=tuning.LARGEST_PAGE))


def _workers(client: SyncPulse, *_: object) -> Iterable[str]:
    return (worker.worker_id for worker in client.workers())


_KINDS: dict[str | None, Names] = {
    **dict.fromkeys(("topic", "topics"), _topics),
    "lane": _lanes,
    "schedule": _schedules,
    **dict.fromkeys(("worker", "worker_id", "workers"), _workers),
}
