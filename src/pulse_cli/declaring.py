"""The classes of commands: examples in their help, shared options, and names that a shell completes."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.types import StringParamType

from pulse_cli import tuning
from pulse_cli.connection import client_for, settings_here
from pulse_cli.inputs import CONNECTION_OPTIONS, OUTPUT_OPTIONS, given

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pulse import SyncPulse


class _Declared(click.Command):
    """Adds examples and the shared options to click's commands."""

    def __init__(self, *args: Any, examples: str = "", connects: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault(
            "context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        )
        super().__init__(*args, **kwargs)
        self.examples = [line.strip() for line in examples.strip().splitlines()]
        self.shared = [*OUTPUT_OPTIONS, *(CONNECTION_OPTIONS if connects else ())]
        for param in self.params if connects else ():
            completed(param)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self.shared]

    def own_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of this command alone."""
        return [param for param in self.get_params(ctx) if param not in self.shared]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(ctx, formatter, "Options", self.own_params(ctx))
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:  # unwrapped: a wrapped command line cannot be copied
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        _write_options(ctx, formatter, "Shared options", self.shared)


class Command(_Declared):
    """A command."""


class Group(_Declared, click.Group):
    """A group of commands."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of declaration, not alphabetical

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1) if args else []
            if not close or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}. Did you mean {close[0]!r}?", ctx) from None


Group.group_class = Group


class GroupThatShows(Group):
    """A group whose command `show` is meant when no other is named: `pulse lanes TOPIC`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_named = any(arg in self.commands for arg in args) or args[:1] in (["-h"], ["--help"])
        may_be_named = ctx.resilient_parsing and not args  # a shell completes the next word
        return super().parse_args(ctx, args if is_named or may_be_named else ["show", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands, and the arguments of `show`."""
        arguments = [one for one in self.commands["show"].params if isinstance(one, click.Argument)]
        found = [item for one in arguments for item in one.shell_complete(ctx, incomplete)]
        return [*super().shell_complete(ctx, incomplete), *found]


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Sequence[click.Parameter]
) -> None:
    records = [
        record
        for param in params
        if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
    ]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


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
