"""Acts on several jobs or schedules, one after the other. A refusal does not stop the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from pulse_cli.failures import Failure, failure_of
from pulse_cli.views.output import echo_json, output_here, plain
from pulse_cli.views.shapes import Shape
from pulse_text import printable

Result = TypeVar("Result")


def act_on_each(
    names: Iterable[str],
    act: Callable[[str], Result],
    *,
    sentence: Callable[[Result], str],
    shape: Callable[[Result], Shape],
) -> None:
    """Act on each and print the result. Ends with the exit code of the first refusal, if any.

    JSON is an array of the successful ones. An unavailable server ends it at once.
    """
    import pulse

    output = output_here()
    shapes: list[Shape] = []
    first: Failure | None = None
    try:
        for name in names:
            try:
                result = act(name)
            except (pulse.Unavailable, pulse.Unauthenticated, pulse.PermissionDenied):
                raise
            except pulse.PulseError as error:
                failure = failure_of(error)
                first = first or failure
                click.echo(f"pulse: {printable.one_line(failure.sentence)}", err=True)
                continue
            shapes.append(shape(result))
            if output.form == "plain":
                click.echo(
                    "\t".join(plain(shapes[-1].get(key)) for key in ("id", "status") if key in shapes[-1])
                )
            elif output.is_for_people:
                click.echo(printable.one_line(sentence(result)))
    finally:
        if output.form == "json":
            echo_json(shapes)
    if first is not None:
        raise Failure("", first.code)
