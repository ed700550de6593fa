"""The classes of commands: examples in their help, and shared options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pulse_cli.connection.completion import completed
from pulse_cli.inputs.shared_options import CONNECTION_OPTIONS, OUTPUT_OPTIONS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
